"""A filter family: a user's request, and the stages that it leads to.

In: a spec (a family with its sizes) and a stage number, with the arrival rates so far; out: a
StageSpec, or None when the family does not grow. Specs are frozen values with a plain form for the
catalog. Nothing outside this room asks which family it has: it asks the spec.

    family    stage i holds          error of stage i       the whole filter
    Fixed     capacity               target_error           target_error; full means full
    Scalable  initial * growth^i     P (1 - r) r^i          at most target_error, for ever
    Dynamic   capacity               target_error           grows with every stage, by a little
    Flexible  capacity * 2^(speed-1) the baseline's         more than its own error (promise.py)

Invariants
  1. The same spec gives the same stages on every machine: sizes come from theory/ alone.
  2. `stage(i)` exists for every i of a family that grows, up to slices of 2^48 bits (32 TiB).

Not here: living stages and their fill (store), formulas (theory), what a layout decides (layout).
"""

from __future__ import annotations

import collections.abc as abc
from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import SchemeCode
from bloomstore.layout.layouts import Layout, Scheme


class FilterSpec(ABC):
    """One family with its sizes: Fixed, Scalable, Dynamic or Flexible."""

    __slots__ = ()

    family: ClassVar[str]  # in catalog rows and on the command line; never changed
    grows: ClassVar[bool] = True

    if TYPE_CHECKING:  # fields of the families; Flexible computes its target error

        @property
        def target_error(self) -> float:
            """The error that is asked for."""

        @property
        def scheme(self) -> Scheme:
            """The hash scheme of all stages."""

        @property
        def seed(self) -> int:
            """The seed of the fingerprints of all keys."""

    @abstractmethod
    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec | None:
        """Stage `index`, given the arrival rates of the stages before it; None: there is none."""

    @property
    @abstractmethod
    def first_capacity(self) -> int:
        """Keys that the first stage is made for."""

    @property
    @abstractmethod
    def layout_name(self) -> Layout:
        """The layout of all stages, whether it was named or not."""

    @abstractmethod
    def layouts(self) -> dict[str, Self]:
        """The same spec with every layout that it can have, its own among them."""

    @abstractmethod
    def resolved(self) -> Self:
        """The same spec with its layout named, as it is written into the catalog."""

    @abstractmethod
    def is_met_by(self, existing: FilterSpec, *, is_rebuilt: bool = False) -> bool:
        """Whether an existing filter is what this spec asks for.

        A layout that was not named fits any, and so does the capacity that a rebuild chose.
        """

    @abstractmethod
    def for_keys(self, keys: int, target_error: float | None = None) -> Self:
        """The same family with a first stage for this many keys, and with another error if given.

        A family that has sizes of its own stays as it is, and raises SpecError for an error.
        """

    @property
    def can_be_sized(self) -> bool:
        """Whether `for_keys` changes anything."""
        return True

    @property
    def promised_keys(self) -> int:
        """Keys that a rebuild must leave room for: where no stage follows, the capacity."""
        return 0

    @property
    def follows_rates(self) -> bool:
        """Whether the sizes of later stages depend on how fast keys arrive."""
        return False

    @abstractmethod
    def promised_error(self, stages: abc.Sequence[StageSpec]) -> float:
        """The error that the family promises for a filter with these stages."""

    def keys_when_full(self, stage: StageSpec) -> int:
        """Keys that make a stage of this family full.

        A vector of scheme H3 is rounded up to a power of two, and a growing filter that is full
        by fill uses all of it.
        """
        if stage.full_by is FullBy.KEYS or stage.geometry.scheme is not SchemeCode.H3:
            return stage.capacity
        return max(stage.capacity, int(stage.geometry.keys_at_fill(stage.fill_limit)))

    def to_dict(self) -> dict[str, Any]:
        """Plain form, for catalog rows and `--json`; plain_form.py has the way back."""
        return {"family": self.family} | asdict(cast("Any", self))

    def _with(self, **fields: Any) -> Self:
        """The same spec with some fields replaced."""
        return cast("Self", replace(cast("Any", self), **fields))
