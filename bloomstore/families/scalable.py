"""Family scalable: stages that grow by a factor and tighten by another (SBF)."""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bloomstore.errors import SpecError
from bloomstore.families.fields import check_hashing, set_error, set_real, set_whole
from bloomstore.families.sized import SizedSpec
from bloomstore.families.stage import StageSpec
from bloomstore.layout.layouts import Layout, Scheme
from bloomstore.theory import scalable

_LEAST_STAGE_ERROR = 1e-30  # errors of stages far out get no smaller: there is no size for 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalable(SizedSpec):
    """Grows without bound and keeps `target_error` for the whole filter (Almeida et al., 2007).

    store.create("seen", Scalable(target_error=1e-3, initial_capacity=10_000))
    """

    family: ClassVar[str] = "scalable"
    tightens: ClassVar[bool] = True
    capacity_field: ClassVar[str] = "initial_capacity"

    target_error: float
    initial_capacity: int = 10_000
    growth: float = 2.0
    tightening: float = 0.85
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        set_error(self, "target_error")
        set_whole(self, "initial_capacity", 1)
        growth, tightening = set_real(self, "growth"), set_real(self, "tightening")
        if not 1.0 <= growth <= 16.0:
            raise SpecError(f"growth must be in 1..16, got {growth}")
        if not 0.0 < tightening < 1.0:
            raise SpecError(f"tightening must be in (0, 1), got {tightening}")
        check_hashing(self.layout, self.scheme, self.seed)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Stage `index`: growth^index times the keys at tightening^index times the error."""
        first_error = scalable.first_error(self.target_error, self.tightening)
        error = scalable.stage_error(first_error, self.tightening, index)
        try:
            capacity = ceil(self.initial_capacity * self.growth**index)
        except OverflowError:
            raise SpecError(f"stage {index} at growth {self.growth} has no size") from None
        return self._sized(capacity, max(error, _LEAST_STAGE_ERROR))

    def promised_error(self, stages: abc.Sequence[StageSpec]) -> float:
        """The target error, however many stages there are."""
        return self.target_error
