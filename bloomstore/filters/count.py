"""How many different keys a filter was given, from its counts and its bits.

A stage counts the keys that were new when they came. Keys that the filter reported by mistake at
that moment are not counted: if the error was E then, each new key stands for 1 / (1 - E) keys. E
was made up of the error of the older stages, which their bits still show, and of the error of the
stage itself while it filled. The mean of the latter follows from the error that it has now, and
from how unevenly the keys hit it that the older stages let through (theory/sharing):

    keys of a stage = new keys * (offered per new one, by its own errors) / (1 - E of the older)

The number of mistakes is random, about a Poisson number; the interval comes from it and from the
spread of the estimate by the bits. The bits alone would give an estimate too, but one that is two
to twenty times less exact. They serve as a check: a count that they contradict (after a crash of
durability `process` it is an upper bound) widens the interval to their estimate.

In: the stages, oldest first; out: an Estimate. Not here: errors (layout, overlap.py).
"""

from __future__ import annotations

import collections.abc as abc
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bloomstore.filters import overlap
from bloomstore.filters.estimate import SIGMAS_95, Estimate
from bloomstore.filters.overlap import UpTo
from bloomstore.layout.contract import Geometry
from bloomstore.theory import sharing

# Standard deviations from the bits' estimate at which a count is doubted. One sound stage in seven
# is further off and gets a wider interval than it needs.
_DOUBT_SIGMAS = 1.5
# With a mean below this, 97.5 % of all filters have made no mistake.
_NO_MISTAKES = 0.025
_UNKNOWN = Estimate(math.inf, 0.0, math.inf, uncertain=True)


class Counted(NamedTuple):
    """One stage: its geometry, its set bits, the keys that were new, and its vector if readable."""

    geometry: Geometry
    set_bits: int
    keys: int
    bits: NDArray[np.uint8] | None = None


def distinct_keys(stages: abc.Sequence[Counted]) -> Estimate:
    """How many different keys were added to the stages."""
    errors = [stage.geometry.error_at(stage.set_bits, stage.bits) for stage in stages]
    value = variance = sampled = below = above = 0.0
    before, load = UpTo(0.0, 0.0), 1.0
    for stage, error, after in zip(stages, errors, _errors_up_to(stages, errors), strict=True):
        told, sigma = stage.geometry.keys_and_sigma(stage.set_bits)
        here = _within(before.error, after.error)
        offered = stage.keys * _per_new(stage.geometry, error, here)
        keys = _over(offered, 1.0 - before.error)
        # The same with errors one sigma higher: both come from one sample, and err together.
        worse = _within(before.error + before.sigma, after.error + after.sigma)
        worst = stage.keys * _per_new(stage.geometry, error, worse)
        worst = _over(worst, 1.0 - before.error - before.sigma)
        if not (sigma < math.inf and worst < math.inf):
            return _UNKNOWN
        value += keys
        mistaken = max(0.0, keys - stage.keys)
        variance += mistaken * keys / max(stage.keys, 1) + _luck(stage.geometry, told, mistaken)
        sampled += worst - keys
        # Where older stages report the keys of some positions, the bits show fewer keys than came.
        low, high = told, _in_fewer_cells(told, stage, load)
        if not low - _DOUBT_SIGMAS * sigma <= offered <= high + _DOUBT_SIGMAS * sigma:
            passed = 1.0 - before.error
            below += max(0.0, (offered - low) / passed + SIGMAS_95 * sigma)
            above += max(0.0, (high - offered) / passed + SIGMAS_95 * sigma)
        load *= sharing.shrinking(here, sharing.plain_moment(here, stage.geometry.hashes))
        before = after
    new = float(sum(stage.keys for stage in stages))
    spread = SIGMAS_95 * math.sqrt(variance + sampled**2)
    if value - new > _NO_MISTAKES:
        spread += 0.5  # keys are whole
    low = max(new, value - spread) if not below else max(0.0, value - spread - below)
    return Estimate(value, min(value, low), value + spread + above)


def keys_from_bits(geometry: Geometry, set_bits: int) -> Estimate:
    """How many different keys the set bits of one stage tell of, whatever was counted."""
    keys, sigma = geometry.keys_and_sigma(set_bits)
    spread = SIGMAS_95 * sigma
    return Estimate(keys, max(0.0, keys - spread), keys + spread, uncertain=not sigma < math.inf)


def _per_new(geometry: Geometry, error: float, here: float) -> float:
    """Keys that got as far as a stage for each that was new to it.

    `error`: of the stage alone. `here`: of the stage for keys that no older stage reports.
    """
    hashes = geometry.hashes
    alone, there = min(1.0, error) ** (1.0 / hashes), here ** (1.0 / hashes)
    return geometry.offered_per_new(here) * sharing.uneven_per_new(alone, there, hashes)


def _within(before: float, after: float) -> float:
    """The error of a stage for keys that no older stage reports, from the errors of the chain."""
    return min(1.0, max(0.0, _over(after - before, 1.0 - before)))


def _over(number: float, share: float) -> float:
    """The number over a share that may be 0: inf then, unless the number is 0, too."""
    if share > 0.0:
        return number / share
    return math.inf if number > 0.0 else 0.0


def _in_fewer_cells(told: float, stage: Counted, load: float) -> float:
    """The most keys that the bits can stand for: if all of them lie in 1/load of the vector."""
    fill = stage.set_bits / stage.geometry.vector_bits
    if fill == 0.0 or load == 1.0:
        return told
    if load * fill >= 1.0:
        return math.inf
    return told * math.log1p(-load * fill) / (load * math.log1p(-fill))


def _errors_up_to(stages: abc.Sequence[Counted], errors: list[float]) -> list[UpTo]:
    readable = [(stage.bits, stage.geometry) for stage in stages if stage.bits is not None]
    if len(readable) < len(stages):
        readable = []  # a sample needs every stage
    return overlap.errors_up_to(readable, errors, overlap.MANY)


def _luck(geometry: Geometry, keys: float, mistaken: float) -> float:
    """Variance of the mistakes because a vector may fill more or less evenly than on average."""
    if keys == 0.0:
        return 0.0
    spread = geometry.hashes / math.sqrt(geometry.vector_bits)
    return (mistaken * spread) ** 2
