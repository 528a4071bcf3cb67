"""Chains of many stages keep what they promise, and say what they report, up to errors of 0.3.

Stages look at the same positions, and a key goes into a new stage only if no older one reports it
(theory/sharing.py). Asking ABSENT absent keys tells the error with a relative spread of
sqrt((1 - E) / (E ABSENT)); what `stats` says has a spread of its own, at most 1 % here. The two may
be five standard deviations apart; a promise may be exceeded by as much as asking errs alone.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import bloomstore
from bloomstore import Dynamic, FilterSpec, Flexible, Scalable, Sequence
from bloomstore.layout.layouts import Layout, Scheme
from bloomstore.store.filter import Filter
from tests.support.variants import FreshKeys, absent_keys, made

ABSENT = 200_000
SIGMAS = 5.0


def grow(seen: Filter, stages: int, keys: FreshKeys) -> None:
    """Adds keys until the filter has so many stages, the newest one full, or takes no more."""
    capacity = seen.stats().stages[0].capacity
    added = 1
    while added and len(seen._current().live.stages) < stages:
        added = seen.add_many(keys.take(2 * capacity))
    newest = seen.stats().stages[-1]
    seen.add_many(keys.take(newest.capacity - newest.keys))


def check(store: bloomstore.Store, spec: FilterSpec, stages: int, absent: int = ABSENT) -> None:
    with made(store, spec) as seen:
        grow(seen, stages, FreshKeys())
        stats = seen.stats()
        asked = np.concatenate(list(absent_keys(absent)))
        measured = float(seen.may_contain_many(asked).mean())
        spread = math.sqrt(max(measured * (1.0 - measured), 1e-9) / absent)
        told = 0.01 * stats.error_rate if len(stats.stages) > 1 else 0.0
        what = f"{spec}, {len(stats.stages)} stages: measured {measured:.4f}"
        assert measured <= stats.target_error + SIGMAS * spread, f"{what} > {stats.target_error}"
        off = abs(measured - stats.error_rate)
        assert off <= SIGMAS * (spread + told / 3.0), f"{what}, told {stats.error_rate:.4f}"


CHAINS = [(0.3, 1), (0.3, 2), (0.3, 4), (0.3, 12), (0.1, 20), (0.05, 30), (0.01, 40), (0.001, 12)]


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
@pytest.mark.parametrize(("error", "stages"), CHAINS)
def test_dynamic_filters_report_what_they_say(
    measured: bloomstore.Store, layout: Layout, error: float, stages: int
) -> None:
    check(measured, Dynamic(capacity=400, target_error=error, layout=layout), stages)


@pytest.mark.parametrize("scheme", ["h3", "spread"])
@pytest.mark.parametrize("speeds", [[1], [1, 2, 1, 3]], ids=str)
@pytest.mark.parametrize(("error", "hashes", "stages"), [(0.3, 2, 8), (0.1, 3, 10), (0.05, 4, 20)])
def test_flexible_filters_report_what_they_say(
    measured: bloomstore.Store,
    scheme: Scheme,
    speeds: list[int],
    error: float,
    hashes: int,
    stages: int,
) -> None:
    spec = Flexible(
        baseline_bits=4096, hashes=hashes, error=error, expansion=Sequence(speeds), scheme=scheme
    )
    check(measured, spec, stages)


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
@pytest.mark.parametrize("error", [0.3, 0.1, 0.01])
def test_scalable_filters_keep_their_promise(
    measured: bloomstore.Store, layout: Layout, error: float
) -> None:
    spec = Scalable(target_error=error, initial_capacity=100, growth=1.5, layout=layout)
    check(measured, spec, 10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("capacity", [100, 1000, 20_000])
@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
@pytest.mark.parametrize("error", [0.3, 0.1, 0.03, 0.01, 0.001])
def test_long_chains_report_what_they_say(
    measured: bloomstore.Store,
    layout: Layout,
    error: float,
    capacity: int,
) -> None:
    for stages in (1, 3, 10, 30, 100):
        spec = Dynamic(capacity=capacity, target_error=error, layout=layout, seed=stages)
        check(measured, spec, stages, 1_000_000)
