"""The error of growing filters: at every step just before the next stage, and after 1000 times.

What is compared: the absent keys that are reported, with what the bits let expect (addresses are
independent, also between stages) and with the promise for this many stages. For Scalable the
latter is the sum of its stages' errors, which is below the target for ever: tighter than the
target by a fifth at ten stages.

What would be seen at the last step, at one false alarm in 10^6 assertions, with 99 % certainty:
1.3 x for targets 1e-2 and 1e-3 (640 reports expected or more), 1.6 x for 1e-4 (160), 22 x for
1e-6 (0.8). Where the promise is about the average (LUCK), that holds for the comparison with the
bits. Steps before the last ask fewer keys. That stages have the right number of bits is seen to a
few percent, and for 1e-6 too, in test_stages.py. The numpy kernels ask a tenth, and start from 16
keys only: they give the same bits (tests/kernels).
"""

from __future__ import annotations

import pytest

import bloomstore
from bloomstore import kernels
from bloomstore.families.stage import StageSpec
from bloomstore.theory.scalable import compound_error
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
    open_next,
)

IS_QUICK = kernels.BACKEND == "compiled"
SHARE = 1.0 if IS_QUICK else 0.1
ABSENT_AT_STEPS = {1e-2: 20_000, 1e-3: 50_000, 1e-4: 100_000, 1e-6: 100_000}
ABSENT_AT_END = {1e-2: 100_000, 1e-3: 800_000, 1e-4: 2_000_000, 1e-6: 1_000_000}
# One filter of stages that count keys, or of blocked ones, keeps its promise on average only: over
# 12 stages of 16 keys its error has a spread of 9 %, over 10 that double one of 5 %.
LUCK = 1.5

# Ten doublings are 1023 times the first stage. Stages of one size would be a thousand: slow.
STAGES = {"scalable": 10, "flexible": 10, "dynamic": 12}
GROWING = [variant for variant in VARIANTS if variant.family in STAGES]
CONSTANT = [variant for variant in GROWING if variant.family == "dynamic"]


@pytest.mark.parametrize("target_error", TARGETS, ids=lambda error: f"{error:g}")
@pytest.mark.parametrize("variant", GROWING, ids=str)
@pytest.mark.parametrize("capacity", [16, 100] if IS_QUICK else [16])
def test_the_promise_holds_at_every_growth_step(
    measured: bloomstore.Store, variant: Variant, capacity: int, target_error: float
) -> None:
    stages = STAGES[variant.family]
    keys = FreshKeys()
    with made(measured, variant.spec(capacity, target_error, seed=capacity)) as seen:
        fill_newest(seen, keys)
        for _ in range(1, stages):
            check_bits(seen, int(ABSENT_AT_STEPS[target_error] * SHARE))
            open_next(seen, keys)
            fill_newest(seen, keys)
        check_promise(seen, int(ABSENT_AT_END[target_error] * SHARE))
        stats = seen.stats()
        assert len(stats.stages) == stages
        assert stats.keys >= 900 * capacity or variant.family == "dynamic"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", CONSTANT, ids=str)
def test_the_promise_holds_after_a_thousand_stages_of_one_size(
    measured: bloomstore.Store, variant: Variant
) -> None:
    keys = FreshKeys()
    with made(measured, variant.spec(16, 1e-6)) as seen:
        seen.add_many(keys.take(15_990))
        fill_newest(seen, keys)
        assert len(seen.stats().stages) == 1000
        check_promise(seen, 1_000_000)


def check_bits(seen: bloomstore.Filter, absent: int) -> int:
    """Asks for absent keys and holds the answer to what the bits of all stages let expect."""
    reported = count_reported(seen, absent)
    assert reported <= most(absent * error_of_bits(seen))
    if all(keeps_bound_always(stage) for stage in stages_of(seen)):
        assert error_of_bits(seen) <= promise(seen)
    return reported


def check_promise(seen: bloomstore.Filter, absent: int) -> None:
    """Does the same, and holds the answer to the promise."""
    is_bound = all(keeps_bound_always(stage) for stage in stages_of(seen))
    assert check_bits(seen, absent) <= most(absent * promise(seen) * (1.0 if is_bound else LUCK))


def promise(seen: bloomstore.Filter) -> float:
    """What the stages promise together; never more than what the family promises."""
    promised = compound_error(stage.target_error for stage in stages_of(seen))
    assert promised <= seen.stats().target_error * (1 + 1e-12)
    return promised


def stages_of(seen: bloomstore.Filter) -> list[StageSpec]:
    """The stages that the filter has by now, as its family planned them."""
    planned = [seen.spec.stage(index, ()) for index in range(len(seen._current().live.stages))]
    return [stage for stage in planned if stage is not None]
