"""The error of one full stage, measured: asking for keys that were never added.

Two questions are kept apart, because luck enters them differently.

    the bits      Given its bits, a filter reports an absent key with a known chance (ideal
                  hashing). Too many reports mean that addresses are not independent.
    the promise   The same count against what the family promised, over a pool of filters with
                  different seeds. Too many mean that bits are too few or too full, or addresses
                  not independent.

What would be seen, at one false alarm in 10^6 assertions (families/chance.py). ABSENT keys are
asked per capacity, shared by its filters; four capacities make the pool of one target.

    target  reports expected     excess seen with 99 % certainty
            capacity   pool      one capacity   pool
    1e-2    2000       8000      1.16 x         1.08 x
    1e-3    1000       4000      1.24 x         1.11 x
    1e-4     200        800      1.56 x         1.26 x
    1e-6       2          8      11 x           5 x

Where the promise is about the average (blocked layouts, stages that count keys) the pool is
allowed the factor LUCK, and sees that much less. Scalable's first stage has 0.15 times the target,
so about a seventh of these counts; what it promises as a whole is measured in test_growth.py. At
1e-6 the slow tests see 1.3 x; naive double hashing, the known trap of small tight vectors, gave
6.9 to 18 x, and that sizes are right is seen without asking in test_stages.py. The numpy kernels
ask a tenth as many keys: they give the same bits as the compiled ones (tests/kernels).
"""

from __future__ import annotations

import pytest

import bloomstore
from bloomstore import kernels
from tests.support.chance import most
from tests.support.variants import (
    TARGETS,
    VARIANTS,
    FreshKeys,
    Variant,
    count_reported,
    error_of_bits,
    fill_newest,
    keeps_bound_always,
    made,
)

SHARE = 1.0 if kernels.BACKEND == "compiled" else 0.1
ABSENT = {1e-2: 200_000, 1e-3: 1_000_000, 1e-4: 2_000_000, 1e-6: 2_000_000}
# Small filters differ from each other more than large ones.
FILTERS = {16: 6, 100: 4, 1000: 2, 100_000: 1}
# Blocked layouts and stages that count keys keep their promise on average. The average of a pool
# has a spread of up to 4.4 % (at 1e-6 30 %, far below what is seen there anyway).
LUCK = 1.15

all_variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
all_targets = pytest.mark.parametrize("target_error", TARGETS, ids=lambda error: f"{error:g}")


@all_variants
def test_an_empty_filter_reports_nothing(measured: bloomstore.Store, variant: Variant) -> None:
    for target_error in TARGETS:
        with made(measured, variant.spec(1000, target_error)) as seen:
            assert count_reported(seen, 100_000) == 0


@all_targets
@all_variants
def test_the_measured_error_is_within_the_promise(
    measured: bloomstore.Store, variant: Variant, target_error: float
) -> None:
    absent = int(ABSENT[target_error] * SHARE)
    all_reported, all_allowed = 0, 0.0
    for capacity, filters in FILTERS.items():
        reported, expected, allowed = measure(
            measured, variant, capacity, target_error, absent, filters
        )
        assert reported <= most(expected), f"{capacity} keys: {reported} of {absent} reported"
        all_reported += reported
        all_allowed += allowed
    assert all_reported <= most(all_allowed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@all_targets
@all_variants
def test_the_measured_error_is_within_the_promise_for_a_million_keys(
    measured: bloomstore.Store, variant: Variant, target_error: float
) -> None:
    absent = int(min(1000 / target_error, 20_000_000) * SHARE)
    reported, expected, allowed = measure(measured, variant, 1_000_000, target_error, absent)
    assert reported <= most(expected)
    assert reported <= most(allowed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@all_variants
def test_one_in_a_million_is_measured_to_a_third(
    measured: bloomstore.Store, variant: Variant
) -> None:
    """700 reports are expected: an error of 1.3 x is seen with 99 % certainty."""
    absent = int(700_000_000 * SHARE)
    reported, expected, allowed = measure(measured, variant, 1000, 1e-6, absent, 10)
    assert reported <= most(expected)
    assert reported <= most(allowed)


def measure(
    store: bloomstore.Store,
    variant: Variant,
    capacity: int,
    target_error: float,
    absent: int,
    filters: int = 1,
) -> tuple[int, float, float]:
    """Absent keys that full filters report, that their bits let expect, and that are allowed."""
    reported, expected, allowed = 0, 0.0, 0.0
    for seed in range(filters):
        with made(store, variant.spec(capacity, target_error, seed)) as seen:
            assert count_reported(seen, 1000) == 0
            fill_newest(seen, FreshKeys())
            stage = seen.spec.stage(0, ())
            assert stage is not None
            error = error_of_bits(seen)
            is_bound = keeps_bound_always(stage)
            assert error <= stage.target_error or not is_bound
            asked = absent // filters
            reported += count_reported(seen, asked)
            expected += asked * error
            allowed += asked * stage.target_error * (1.0 if is_bound else LUCK)
    return reported, expected, allowed
