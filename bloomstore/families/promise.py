"""What a family promises for a filter with these stages.

In: a family and its stages, out: an error. Fixed and Scalable promise their target, whatever comes.
The errors of Dynamic and Flexible grow with every stage, by more than if stages were independent
(theory/sharing), and a stage of theirs is full by keys, whatever fill these make: the promise has
room for luck, 12 % for one stage of 1000 keys and less than 1 % from 10^6 on.

Not here: the error that a filter has now (filters).
"""

from __future__ import annotations

import collections.abc as abc
from functools import lru_cache
from math import sqrt

from bloomstore.families.family import RESERVE_SIGMAS, FilterSpec, Fixed, Scalable
from bloomstore.families.stage import StageSpec
from bloomstore.theory import sharing


def promised_error(spec: FilterSpec, stages: abc.Sequence[StageSpec]) -> float:
    """The error that the family promises for a filter with these stages."""
    if isinstance(spec, Fixed | Scalable):
        return spec.target_error
    # The luck of several stages averages out.
    sigmas = RESERVE_SIGMAS / sqrt(max(1, len(stages)))
    return sharing.chain_error([full_stage(stage, sigmas) for stage in stages])


@lru_cache(maxsize=4096)
def full_stage(stage: StageSpec, sigmas: float = 0.0) -> sharing.Full:
    """The error and so on of a stage that counts new keys, when it is full and alone.

    `sigmas`: of a vector that so many standard deviations of luck have made worse, by its fill or
    by how unequal its blocks are. At 3.1 one stage in 1000 is worse still.
    """
    geometry = stage.geometry
    error, moment = geometry.error_when_counted_full(stage.capacity, sigmas)
    return sharing.Full(min(1.0, max(error, stage.target_error)), geometry.hashes, moment)
