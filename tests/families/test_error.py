"""The error of one full stage, measured: asking for keys that were never added.

Two questions are kept apart, because luck enters them differently.

    the bits      Given its bits, a filter reports an absent key with a known chance (ideal
                  hashing). Too many reports mean that addresses are not independent.
    the promise   The same count against what the family promised, over a pool of filters with
                  different seeds. Too many mean that bits are too few or too full, or addresses
                  not independent.

What would be seen, at one false alarm in 10^6 assertions (families/chance.py). ABSENT keys are asked
per capacity, shared by the filters of the pool; four capacities make the pool of one target.

    target  reports expected     seen with 99 % certainty, compiled kernels
            capacity   pool      one capacity     pool (against the promise, with room for luck)
    1e-2    2000       8000      1.17 x           1.20 x
    1e-3    1000       4000      1.25 x           1.24 x
    1e-4     400       1600      1.40 x           1.33 x    (1.3 x: 84 % and 95 %)
    1e-6       5         20      7 x              4 x

Scalable's first stage has 0.15 times the target, so a sixth of these counts; its power is in
test_growth.py, over all stages. At 1e-6 the slow tests see 1.3 x. Naive double hashing, the known
trap of small tight vectors, gave 6.9 to 18 x. The numpy kernels ask a quarter as many keys: they
give the same bits as the compiled ones (tests/parity), so that run only confirms.
"""

from __future__ import annotations

import itertools

import pytest

import bloomstore
from bloomstore import kernels
from families.chance import most
from families.variants import (
    TARGETS,
    VARIANTS,
    FreshKeys,
    Variant,
    count_reported,
    error_of_bits,
    fill_newest,
    keeps_bound_always,
)

SHARE = 1.0 if kernels.BACKEND == "compiled" else 0.25
ABSENT = {1e-2: 200_000, 1e-3: 1_000_000, 1e-4: 4_000_000, 1e-6: 5_000_000}
# Small filters differ from each other more than large ones.
FILTERS = {16: 12, 100: 8, 1000: 3, 100_000: 1}
# Blocked layouts and stages that count keys keep their promise on average. The average of a pool
# has a spread of 1 to 5 % (at 1e-6 up to 20 %, far below what is seen there anyway).
LUCK = 1.1

all_variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
all_targets = pytest.mark.parametrize("target_error", TARGETS, ids=lambda error: f"{error:g}")


@all_variants
def test_an_empty_filter_reports_nothing(measured: bloomstore.Store, variant: Variant) -> None:
    for target_error, capacity in itertools.product(TARGETS, FILTERS):
        seen = measured.create("seen", variant.spec(capacity, target_error))
        assert count_reported(seen, 20_000) == 0
        measured.drop("seen")


@all_targets
@all_variants
def test_the_measured_error_is_within_the_promise(
    measured: bloomstore.Store, variant: Variant, target_error: float
) -> None:
    absent = int(ABSENT[target_error] * SHARE)
    all_reported, all_promised = 0, 0.0
    for capacity, filters in FILTERS.items():
        reported, expected, promised = measure(
            measured, variant, capacity, target_error, absent, filters
        )
        assert reported <= most(expected), f"{capacity} keys: {reported} of {absent} reported"
        all_reported += reported
        all_promised += promised
    assert all_reported <= most(all_promised * LUCK)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@all_targets
@all_variants
def test_the_measured_error_is_within_the_promise_for_a_million_keys(
    measured: bloomstore.Store, variant: Variant, target_error: float
) -> None:
    absent = int(min(1000 / target_error, 20_000_000) * SHARE)
    reported, expected, promised = measure(measured, variant, 1_000_000, target_error, absent)
    assert reported <= most(expected)
    assert reported <= most(promised * LUCK)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@all_variants
def test_one_in_a_million_is_measured_to_a_third(
    measured: bloomstore.Store, variant: Variant
) -> None:
    """700 reports are expected: an error of 1.3 x is seen with 99 % certainty."""
    absent = int(700_000_000 * SHARE)
    reported, expected, promised = measure(measured, variant, 1000, 1e-6, absent, 10)
    assert reported <= most(expected)
    assert reported <= most(promised * LUCK)


def measure(
    store: bloomstore.Store,
    variant: Variant,
    capacity: int,
    target_error: float,
    absent: int,
    filters: int = 1,
) -> tuple[int, float, float]:
    """Absent keys that full filters report, that their bits let expect, and that were promised."""
    reported, expected, promised = 0, 0.0, 0.0
    for seed in range(filters):
        seen = store.create("seen", variant.spec(capacity, target_error, seed))
        fill_newest(seen, FreshKeys())
        stage = seen.spec.stage(0, ())
        assert stage is not None
        error = error_of_bits(seen)
        if keeps_bound_always(stage):
            assert error <= stage.target_error
        asked = absent // filters
        reported += count_reported(seen, asked)
        expected += asked * error
        promised += asked * stage.target_error
        store.drop("seen")
    return reported, expected, promised
