"""Geometries, fingerprints and a plain model of a vector, for comparing kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bloomstore.layout.contract import Geometry
from bloomstore.layout.layouts import BY_NAME, SCHEMES

Prints = NDArray[np.uint64]
Bits = NDArray[np.uint8]
Change = tuple[int, NDArray[np.bool_], int]

PLENTY = 1 << 60


def geometry(layout: str, scheme: str, slice_bits: int, hashes: int) -> Geometry:
    return BY_NAME[layout](scheme=SCHEMES[scheme], slice_bits=slice_bits, hashes=hashes)


# Layout, scheme and sizes: one bit, odd, a power of two, past one word and one group of hashes.
GEOMETRIES = [
    geometry(*row)
    for row in (
        ("plain", "spread", 1, 1),
        ("plain", "spread", 257, 7),
        ("plain", "spread", 1 << 16, 10),
        ("plain", "spread", 1_000_003, 7),
        ("sliced", "spread", 7, 64),
        ("sliced", "spread", 1000, 3),
        ("sliced", "spread", 1 << 14, 7),
        ("sliced", "spread", 99_991, 17),
        ("blocked", "spread", 512, 7),
        ("blocked", "spread", 512 * 333, 8),
        ("blocked", "spread", 512 * 1024, 1),
        ("blocked", "spread", 512 * 77, 64),
        ("plain", "h3", 1, 1),
        ("plain", "h3", 1 << 9, 9),
        ("plain", "h3", 1 << 20, 7),
        ("sliced", "h3", 1 << 6, 64),
        ("sliced", "h3", 1 << 13, 8),
        ("sliced", "h3", 1 << 17, 7),
    )
]


@st.composite
def small_geometries(draw: st.DrawFn) -> Geometry:
    """Small enough that keys of a short list collide."""
    kind = draw(st.sampled_from(["plain", "sliced", "blocked", "plain h3", "sliced h3"]))
    layout, _, scheme = kind.partition(" ")
    if layout == "blocked":
        bits = 512 * draw(st.integers(1, 20))
    elif scheme:
        bits = 1 << draw(st.integers(0, 12))
    else:
        bits = draw(st.integers(1, 5000))
    return geometry(layout, scheme or "spread", bits, draw(st.integers(1, 64)))


def some_prints(seed: int, count: int, distinct: int | None = None) -> Prints:
    """Random fingerprints; with `distinct`, drawn from so many, so that some occur again."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 2**64, (distinct or count, 2), dtype=np.uint64)
    return pool if distinct is None else pool[rng.integers(0, distinct, count)]


def empty_vector(of: Geometry) -> Bits:
    return np.zeros(of.vector_bytes, dtype=np.uint8)


def half_full_vector(of: Geometry, seed: int) -> Bits:
    """Random bytes: fill 1/2, also where no key could set a bit."""
    return np.random.default_rng(seed).integers(0, 256, of.vector_bytes, dtype=np.uint8)


def is_reported(vector: Bits, of: Geometry, prints: Prints) -> list[bool]:
    """The definition: all bits of the key are set."""
    return [
        all(vector[a >> 3] >> (a & 7) & 1 for a in of.addresses_of_one(row.tobytes()))
        for row in prints.astype("<u8")
    ]


def add_one_by_one(
    vector: Bits, of: Geometry, prints: Prints, bits_left: int, keys_left: int
) -> tuple[int, list[bool], int]:
    """The definition of insert: key by key, up to the first new key that does not fit."""
    new: list[bool] = []
    bits = 0
    for row in prints.astype("<u8"):
        unset = {
            address
            for address in of.addresses_of_one(row.tobytes())
            if not vector[address >> 3] >> (address & 7) & 1
        }
        if unset and (bits_left - bits < of.hashes or keys_left - sum(new) < 1):
            break
        for address in unset:
            vector[address >> 3] |= 1 << (address & 7)
        bits += len(unset)
        new.append(bool(unset))
    return len(new), new, bits


def same(left: Change, right: Change | tuple[int, list[bool], int]) -> bool:
    """Equal, and of the right types."""
    assert left[1].dtype == np.bool_
    assert type(left[0]) is int
    assert type(left[2]) is int
    return left[0] == right[0] and left[2] == right[2] and left[1].tolist() == list(right[1])
