"""All combinations of family, layout and hash scheme that exist, and how to fill them.

A variant is a family without its sizes: `spec(capacity, target_error)` gives the filter. A new
layout, scheme or family joins every test of this folder by one line in VARIANTS.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bloomstore import Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence, Store, kernels
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import LINE_BITS, Geometry, LayoutCode
from bloomstore.layout.layouts import Layout, Scheme
from bloomstore.store.filter import Filter
from bloomstore.theory.scalable import compound_error
from bloomstore.theory.sizing import round_up_power_of_two
from bloomstore.theory.vector import optimal_bits, optimal_hashes

TARGETS = (1e-2, 1e-3, 1e-4, 1e-6)
# Keys count up from 0, absent keys from here: disjoint, and both hash like anything else.
FIRST_ABSENT = 1 << 40


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to build a filter."""

    family: str
    layout: Layout
    scheme: Scheme

    def spec(self, capacity: int, target_error: float, seed: int = 0) -> FilterSpec:
        """A filter whose first stage holds at least `capacity` keys."""
        if self.family == "flexible":
            return Flexible(
                baseline_bits=round_up_power_of_two(
                    math.ceil(optimal_bits(capacity, target_error))
                ),
                hashes=optimal_hashes(target_error),
                error=target_error,
                expansion=Sequence(range(1, 21)),  # doubles with every stage
                scheme=self.scheme,
                seed=seed,
            )
        if self.family == "scalable":
            return Scalable(
                target_error=target_error,
                initial_capacity=capacity,
                layout=self.layout,
                scheme=self.scheme,
                seed=seed,
            )
        family = {"fixed": Fixed, "dynamic": Dynamic}[self.family]
        return family(
            capacity=capacity,
            target_error=target_error,
            layout=self.layout,
            scheme=self.scheme,
            seed=seed,
        )

    def __str__(self) -> str:
        return f"{self.family}-{self.layout}-{self.scheme}"


_HASHED: list[tuple[Layout, Scheme]] = [
    ("plain", "spread"),
    ("plain", "h3"),
    ("sliced", "spread"),
    ("sliced", "h3"),
    ("blocked", "spread"),
]
VARIANTS = [
    *(
        Variant(family, *hashed)
        for family in ("fixed", "scalable", "dynamic")
        for hashed in _HASHED
    ),
    Variant("flexible", "plain", "h3"),
    Variant("flexible", "plain", "spread"),
]


def keeps_bound_always(stage: StageSpec) -> bool:
    """Whether every full stage keeps its error, and not only the average one.

    A fill limit holds plain and sliced stages to it whatever the keys are. Blocks of equal fill
    can be crowded in different ways, and a stage that counts keys has the fill its keys give it.
    """
    return stage.full_by is FullBy.FILL and stage.geometry.layout is not LayoutCode.BLOCKED


@contextlib.contextmanager
def made(store: Store, spec: FilterSpec) -> abc.Iterator[Filter]:
    """A filter that is dropped at the end."""
    seen = store.create("seen", spec)
    try:
        yield seen
    finally:
        store.drop("seen")


class FreshKeys:
    """Integers that were not given out before."""

    def __init__(self) -> None:
        self.given = 0

    def take(self, count: int) -> NDArray[np.int64]:
        self.given += count
        return np.arange(self.given - count, self.given, dtype=np.int64)


def absent_keys(count: int, at_once: int = 5_000_000) -> abc.Iterator[NDArray[np.int64]]:
    """So many keys that no FreshKeys gives out, in arrays of bounded size."""
    for start in range(0, count, at_once):
        first = FIRST_ABSENT + start
        yield np.arange(first, first + min(at_once, count - start), dtype=np.int64)


def fill_newest(seen: Filter, keys: FreshKeys) -> None:
    """Adds keys until the newest stage is full: one more new key would open the next.

    A key sets at most `hashes` bits, so what is offered here always fits and nothing grows.
    """
    while True:
        newest = seen.stats().stages[-1]
        stage = seen.spec.stage(newest.stage, ())
        assert stage is not None
        set_bits = round(newest.fill * newest.bits)
        room = min(stage.bits_left(set_bits) // stage.geometry.hashes, stage.keys_left(newest.keys))
        if room < 1:
            break
        seen.add_many(keys.take(room))
    assert stage.is_full(set_bits, newest.keys)


def open_next(seen: Filter, keys: FreshKeys) -> None:
    """Adds keys to a filter whose newest stage is full, until it has grown by one stage."""
    stages = len(seen._current().live.stages)
    while len(seen._current().live.stages) == stages:
        seen.add_many(keys.take(1))


def count_reported(seen: Filter, absent: int) -> int:
    """How many of so many absent keys the filter reports."""
    return sum(int(seen.may_contain_many(keys).sum()) for keys in absent_keys(absent))


def error_of_bits(seen: Filter) -> float:
    """The error of exactly these bits under ideal hashing, counted without the store's numbers."""
    chain = seen._current().live
    pairs = zip(chain.vectors, chain.geometries, strict=True)
    return compound_error(error_of_vector(vector, geometry) for vector, geometry in pairs)


def error_of_vector(vector: NDArray[np.uint8], geometry: Geometry) -> float:
    """The chance that a key with ideal addresses meets set bits only."""
    if geometry.layout is LayoutCode.PLAIN:
        return float((kernels.count_bits(vector) / geometry.slice_bits) ** geometry.hashes)
    if geometry.layout is LayoutCode.SLICED:
        slices = vector.reshape(geometry.slices, -1)
        return math.prod(kernels.count_bits(one) / geometry.slice_bits for one in slices)
    lines = vector.reshape(-1, LINE_BITS // 8)
    fills = np.bitwise_count(lines).sum(axis=1) / LINE_BITS
    return float(np.mean(fills**geometry.hashes))
