"""Families whose stages are sized by keys and an error: Fixed, Scalable and Dynamic.

In: a number of keys and an error, out: a StageSpec in the layout that the user named, or in the one
that serves best. The layout solves for the size; the cache of the results is there, too.

Not here: how keys and errors follow from the stage number (the families' own files).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar, Self, cast

from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.fields import LEAST_ERROR
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import SchemeCode
from bloomstore.layout.layouts import BY_NAME, SCHEMES, Layout
from bloomstore.theory.sizing import round_up_power_of_two

# A stage that reports more than this is of no use, and where errors are within rounding of 1 there
# is no size. Asked of new stages only: what was made before is still read.
MOST_ERROR = 0.99
# From here on a stage that counts new keys is sized for the keys that it is offered: it meets 1 %
# more of them at an error of 0.04, 14 % at 0.3, and an eighth of a percent at 0.01.
OFFERED_FROM_ERROR = 0.02
# One cache line per lookup is worth its bits while they are few. Measured against sliced at 10^7
# keys (tools/compare/layouts.py): at an error of 1e-2 blocked takes 3 % more bits, a warm hit 0.2
# and a cold one 0.6 of the time; at 1e-3 8 % more, and 0.4 of both; at 1e-4 already 15 % more.
# A miss takes as long, up to 1.5 times at 1e-3.
BLOCKED_FROM_ERROR = 1e-3


class SizedSpec(FilterSpec):
    """A family with a capacity, a target error and a choice of layout."""

    __slots__ = ()

    # A filter whose stages get tighter as it grows is sliced unless a layout is named: it would
    # pay the extra bits in every stage, and its misses, which ask all stages, take 1.25 times as
    # long when blocked.
    tightens: ClassVar[bool] = False
    capacity_field: ClassVar[str] = "capacity"

    if TYPE_CHECKING:

        @property
        def layout(self) -> Layout | None:
            """The layout that was named."""

    @property
    def first_capacity(self) -> int:
        """Keys that the first stage is made for."""
        return cast("int", getattr(self, self.capacity_field))

    @property
    def layout_name(self) -> Layout:
        """The layout that was named, or the one that serves best."""
        if self.layout is not None:
            return self.layout
        if self.tightens or self.scheme == "h3" or self.target_error < BLOCKED_FROM_ERROR:
            return "sliced"
        return "blocked"

    def layouts(self) -> dict[str, Self]:
        """The same spec with every layout that its hash scheme allows."""
        return {
            name: self._with(layout=name)
            for name, kind in BY_NAME.items()
            if SCHEMES[self.scheme] in kind.schemes
        }

    def resolved(self) -> Self:
        """The same spec with its layout named."""
        return self if self.layout is not None else self._with(layout=self.layout_name)

    def is_met_by(self, existing: FilterSpec, *, is_rebuilt: bool = False) -> bool:
        """Whether an existing filter is what this spec asks for."""
        if not isinstance(existing, type(self)):
            return False
        if is_rebuilt:
            existing = existing._with(**{self.capacity_field: self.first_capacity})
        if self.layout is None:
            existing = existing._with(layout=None)
        return self == existing

    def for_keys(self, keys: int, target_error: float | None = None) -> Self:
        """The same family with a first stage for this many keys."""
        error = self.target_error if target_error is None else target_error
        return self._with(**{self.capacity_field: keys, "target_error": error})

    def _sized(
        self,
        capacity: int,
        error: float,
        *,
        margin: float = 0.0,
        full_by: FullBy = FullBy.FILL,
    ) -> StageSpec:
        """The least stage for this many keys at this error, `margin` standard deviations spared."""
        kind, scheme = BY_NAME[self.layout_name], SCHEMES[self.scheme]
        if not capacity < 1 << 62:
            raise SpecError(f"a stage holds less than 2^62 keys, asked for {capacity}")
        if error > MOST_ERROR:
            raise SpecError(f"target_error must be in [{LEAST_ERROR}, {MOST_ERROR}], got {error!r}")
        hashes = kind.hashes_at(error) if self.tightens else None
        sizing = kind.size(capacity, error, hashes, margin)
        if full_by is FullBy.KEYS and error > OFFERED_FROM_ERROR:
            offered = ceil(capacity * kind.offered_when_full(sizing))
            sizing = kind.size(offered, error, sizing.hashes, margin)
        bits = sizing.slice_bits
        return StageSpec(
            geometry=kind(
                scheme=scheme,
                slice_bits=round_up_power_of_two(bits) if scheme is SchemeCode.H3 else bits,
                hashes=sizing.hashes,
            ),
            capacity=capacity,
            fill_limit=sizing.fill_limit,
            target_error=error,
            full_by=full_by,
        )
