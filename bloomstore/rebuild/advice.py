"""When a rebuild pays, and by how much.

In: the stats of a filter, its estimated keys, and the rows deleted since it was built, where they
are counted. Out: the reasons, and bits, probes and error now and afterwards.

A lookup of an absent key asks each stage until it finds a bit that is not set: 1 / (1 - fill) bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from bloomstore.rebuild.plan import HEADROOM
from bloomstore.store.stats import FilterStats

MANY_STAGES = 4  # a miss asks all of them
MANY_DELETES = 0.2  # of the keys
LUCK = 1.15  # a small blocked filter may exceed its target by this factor by chance


@dataclass(frozen=True, slots=True)
class Advice:
    """Why a rebuild pays, and the numbers before and after."""

    reasons: tuple[str, ...]
    bits: tuple[int, int]
    probes: tuple[float, float]
    error: tuple[float, float]


def advise(stats: FilterStats, keys: float, deleted: int = 0) -> Advice | None:
    """The reasons for a rebuild and its effect; None if it does not pay."""
    if not stats.spec.can_be_sized or not stats.keys:
        return None
    known = keys if isfinite(keys) else stats.keys  # a full vector may have any number
    left = max(1, ceil(max(0.0, known - deleted) * HEADROOM))
    stage = stats.spec.for_keys(left).stage(0, ())
    assert stage is not None
    reasons = []
    if len(stats.stages) >= MANY_STAGES:
        reasons.append(f"{len(stats.stages)} stages instead of 1")
    if deleted >= MANY_DELETES * stats.keys:
        reasons.append(f"{deleted:,} rows were deleted since it was built")
    if stats.error_rate > LUCK * stats.spec.target_error:
        reasons.append(f"its error is above {stats.spec.target_error:g}")
    if not reasons:
        return None
    return Advice(
        reasons=tuple(reasons),
        bits=(stats.bits, stage.geometry.vector_bits),
        probes=(sum(1 / max(1e-9, 1 - each.fill) for each in stats.stages), 2.0),
        error=(stats.error_rate, min(stage.target_error, stats.spec.target_error)),
    )
