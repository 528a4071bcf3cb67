"""The error that a chain promises whose stages are full by new keys: Dynamic and Flexible.

In: stages, out: an error. The errors of such chains grow with every stage, by more than if stages
were independent (theory/sharing), and a stage is full by keys, whatever fill these make: the
promise has room for luck, 12 % for one stage of 1000 keys and less than 1 % from 10^6 on.

Not here: families that promise their target however many keys come (Fixed, Scalable), and the
error that a filter has now (filters).
"""

from __future__ import annotations

import collections.abc as abc
from functools import lru_cache
from math import sqrt

from bloomstore.families.stage import StageSpec
from bloomstore.theory import sharing

# Standard deviations of luck that a promise has room for: one stage in 1000 has worse. A fixed
# filter keeps as many of its fill in reserve, so that 999 of 1000 sets of `capacity` keys fit; it
# costs 0.3 % of the bits at 10^5 keys and less above.
RESERVE_SIGMAS = 3.1


def chain_error_with_luck(stages: abc.Sequence[StageSpec]) -> float:
    """The error of a chain of full stages; the luck of several averages out."""
    sigmas = RESERVE_SIGMAS / sqrt(max(1, len(stages)))
    return sharing.chain_error([full_stage(stage, sigmas) for stage in stages])


@lru_cache(maxsize=4096)
def full_stage(stage: StageSpec, sigmas: float = 0.0) -> sharing.Full:
    """The error and so on of a stage that counts new keys, when it is full and alone.

    `sigmas`: of a vector that this many standard deviations of luck have made worse, by its fill or
    by how unequal its lines are. At 3.1 one stage in 1000 is worse still.
    """
    geometry = stage.geometry
    error, moment = geometry.error_when_counted_full(stage.capacity, sigmas)
    return sharing.Full(min(1.0, max(error, stage.target_error)), geometry.hashes, moment)
