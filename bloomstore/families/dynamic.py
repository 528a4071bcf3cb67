"""Family dynamic: stages of one size, whose errors add up (the DBF of SFBF, section 2)."""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from typing import ClassVar

from bloomstore.families.fields import check_hashing, set_error, set_whole
from bloomstore.families.promise import chain_error_with_luck
from bloomstore.families.sized import SizedSpec
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.layouts import Layout, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic(SizedSpec):
    """Grows by stages of one size, each with `target_error`: errors add up (the DBF of SFBF, 2).

    store.create("today", Dynamic(capacity=100_000, target_error=1e-4))
    """

    family: ClassVar[str] = "dynamic"

    capacity: int
    target_error: float
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        set_whole(self, "capacity", 1)
        set_error(self, "target_error")
        check_hashing(self.layout, self.scheme, self.seed)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Every stage is like the first, and full after `capacity` new keys."""
        return self._sized(self.capacity, self.target_error, full_by=FullBy.KEYS)

    def promised_error(self, stages: abc.Sequence[StageSpec]) -> float:
        """The error of a chain of these full stages, with room for luck."""
        return chain_error_with_luck(stages)
