"""Family fixed: one stage for a known number of keys."""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from typing import ClassVar

from bloomstore.families.fields import check_hashing, set_error, set_whole
from bloomstore.families.promise import RESERVE_SIGMAS
from bloomstore.families.sized import SizedSpec
from bloomstore.families.stage import StageSpec
from bloomstore.layout.layouts import Layout, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(SizedSpec):
    """One stage for a known number of keys; adding more than fit raises FilterFull.

    store.create("words", Fixed(capacity=1_000_000, target_error=0.01))
    """

    family: ClassVar[str] = "fixed"
    grows: ClassVar[bool] = False

    capacity: int
    target_error: float
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        set_whole(self, "capacity", 1)
        set_error(self, "target_error")
        check_hashing(self.layout, self.scheme, self.seed)

    @property
    def promised_keys(self) -> int:
        """The capacity: no key is taken beyond it."""
        return self.capacity

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec | None:
        """The only stage; None for any other."""
        if index:
            return None
        return self._sized(self.capacity, self.target_error, margin=RESERVE_SIGMAS)

    def promised_error(self, stages: abc.Sequence[StageSpec]) -> float:
        """The target error."""
        return self.target_error

    def keys_when_full(self, stage: StageSpec) -> int:
        """The capacity, also of a vector that was rounded up."""
        return stage.capacity
