"""The interval of `estimate_count` holds the number of keys as often as it says.

A trial makes one filter with a seed of its own, adds so many new keys, and looks whether that
number lies in the interval. The interval says 95 %, and 93 % are demanded: misses of sound
estimates are then at most Poisson with a mean of 7 % of the trials (families/chance.py), and a
variant fails when it has more than such a number has with a chance of one in 10^6. What that sees,
with a chance of 99 %:

    trials of a variant   misses allowed   coverage below which it fails
    24  (default)         11               22 %
    all 17 of them, 408   57               81 %
    900 (slow)            104              86 %

The bias that this was written for (keys reported by mistake were counted twice) covered 0 to 48 %.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any, cast

import numpy as np
import pytest

import bloomstore
from bloomstore.errors import FilterFull
from bloomstore.families.contract import FilterSpec
from tests.support.chance import most
from tests.support.variants import VARIANTS, Variant, made

ERRORS = (0.001, 0.01, 0.1, 0.3)
CAPACITIES = (100, 1000, 10_000)


def misses_of(
    store: bloomstore.Store, variant: Variant, trials: int, capacities: tuple[int, ...]
) -> int:
    """How many of so many intervals do not hold the number of keys that were added."""
    choose = random.Random(str(variant))
    misses = 0
    for seed in range(trials):
        capacity, error = capacities[seed % len(capacities)], ERRORS[seed % len(ERRORS)]
        keys = max(1, int(capacity * choose.uniform(0.1, 1.0 if variant.family == "fixed" else 6)))
        with made(store, variant.spec(capacity, error, seed=choose.getrandbits(32))) as seen:
            try:
                seen.add_many(np.arange(keys))
            except FilterFull:  # one of 1000 that is full early: its keys are not known
                continue
            estimate = seen.estimate_count()
        assert estimate.low <= estimate.value <= estimate.high
        misses += not estimate.low <= keys <= estimate.high
    return misses


def test_the_interval_holds_the_number_of_keys(measured: bloomstore.Store) -> None:
    trials, all_misses = 24, 0
    for variant in VARIANTS:
        misses = misses_of(measured, variant, trials, CAPACITIES[:2])
        assert misses <= most(0.07 * trials), f"{variant}: {misses} of {trials}"
        all_misses += misses
    assert all_misses <= most(0.07 * trials * len(VARIANTS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_interval_holds_the_number_of_many_keys(
    measured: bloomstore.Store, variant: Variant
) -> None:
    trials = 900
    assert misses_of(measured, variant, trials, CAPACITIES) <= most(0.07 * trials)
    assert misses_of(measured, variant, 40, (1_000_000,)) <= most(0.07 * 40)


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (bloomstore.Flexible(baseline_bits=1 << 17, hashes=2, error=0.3), 180_000),
        (bloomstore.Dynamic(capacity=30_000, target_error=0.3, layout="plain"), 300_000),
        (bloomstore.Dynamic(capacity=30_000, target_error=0.3, layout="sliced"), 300_000),
        (bloomstore.Dynamic(capacity=30_000, target_error=0.3, layout="blocked"), 300_000),
    ],
    ids=str,
)
def test_older_stages_that_keep_keys_from_some_positions_make_no_bias(
    measured: bloomstore.Store, spec: FilterSpec, keys: int
) -> None:
    """The mean of 20 is 0.1 % of the keys off at most; without the unevenness it was 0.5 to 0.8."""
    off = []
    for seed in range(20):
        with made(measured, dataclasses.replace(cast("Any", spec), seed=seed)) as seen:
            seen.add_many(np.arange(keys))
            off.append(seen.estimate_count().value / keys - 1.0)
    mean, sigma = np.mean(off), np.std(off) / np.sqrt(len(off))
    assert abs(mean) < 0.001 + 3 * sigma
    assert sigma < 0.001


def test_a_full_vector_has_no_number(measured: bloomstore.Store) -> None:
    with made(measured, bloomstore.Flexible(baseline_bits=8, hashes=1, capacity=8)) as seen:
        seen.add_many(np.arange(100))
        estimate = seen.estimate_count()
        assert estimate.uncertain
        assert estimate.high == float("inf")


def test_an_empty_filter_has_no_keys(measured: bloomstore.Store) -> None:
    for variant in VARIANTS:
        with made(measured, variant.spec(100, 0.01)) as seen:
            assert seen.estimate_count() == bloomstore.Estimate(0.0, 0.0, 0.0)


def test_counts_that_the_bits_contradict_widen_the_interval(measured: bloomstore.Store) -> None:
    with made(measured, bloomstore.Fixed(capacity=10_000, target_error=0.01)) as seen:
        seen.add_many(np.arange(5000))
        exact = seen.estimate_count()
        assert exact.high - exact.low < 10
        segment = seen._current().live.newest.segment
        assert segment is not None
        for wrong in (0, 2500, 5300, 9000):
            segment.words[1] = wrong  # as a process leaves it that dies between bits and counts
            estimate = seen.estimate_count()
            assert estimate.low <= 5000 <= estimate.high
            assert estimate.high - estimate.low < 9000
