"""Family flexible: vectors of one load whose sizes follow an expanding speed (SFBF)."""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.expansion import ByRate, Expansion, Sequence
from bloomstore.families.fields import check_hashing, set_error, set_whole
from bloomstore.families.promise import chain_error_with_luck
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import MAX_HASHES
from bloomstore.layout.layouts import BY_NAME, SCHEMES, Layout, Scheme
from bloomstore.theory import flexible
from bloomstore.theory.vector import capacity_for_error, plain_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Flexible(FilterSpec):
    """Grows at a speed you choose, by a sequence or by arrival rate (SFBF).

    All vectors are powers of two and share H3 hashes, so a lookup hashes once however many there
    are. Give `capacity` of the baseline, or the tolerable `error` it follows from.

    store.create("flows", Flexible(baseline_bits=1 << 20, hashes=6, error=1e-3, expansion=ByRate()))
    """

    family: ClassVar[str] = "flexible"

    baseline_bits: int
    hashes: int
    capacity: int | None = None
    error: float | None = None
    expansion: Expansion = field(default_factory=lambda: Sequence([1]))
    scheme: Scheme = "h3"
    seed: int = 0

    def __post_init__(self) -> None:
        bits = set_whole(self, "baseline_bits", 8)
        if set_whole(self, "hashes", 1) > MAX_HASHES:
            raise SpecError(f"hashes must be in 1..{MAX_HASHES}, got {self.hashes}")
        if bits & (bits - 1):
            raise SpecError(f"baseline_bits must be a power of two, got {bits}")
        if (self.capacity is None) == (self.error is None):
            raise SpecError("give exactly one of capacity= and error=, of the baseline")
        if self.capacity is not None:
            set_whole(self, "capacity", 1)
        if self.error is not None:
            set_error(self, "error")
        if not isinstance(self.expansion, Sequence | ByRate):
            raise SpecError(f"expansion must be Sequence or ByRate, got {self.expansion!r}")
        check_hashing(self.layout_name, self.scheme, self.seed)
        self.stage(0, ())

    @property
    def baseline_capacity(self) -> int:
        """Keys the baseline vector holds (SFBF eq. 2 when only the error was given)."""
        if self.capacity is not None:
            return self.capacity
        assert self.error is not None
        keys = capacity_for_error(self.baseline_bits, self.hashes, self.error)
        if not 1 <= keys < 1 << 62:
            many = "no key" if keys < 1 else "more keys than can be counted"
            raise SpecError(
                f"{self.baseline_bits} bits and {self.hashes} hashes hold {many} at error"
                f" {self.error}"
            )
        return int(keys)

    @property
    def first_capacity(self) -> int:
        """Keys that the baseline holds."""
        return self.baseline_capacity

    @property
    def target_error(self) -> float:
        """Error of one full vector."""
        return plain_error(self.baseline_bits, self.hashes, self.baseline_capacity)

    @property
    def layout_name(self) -> Layout:
        """Always plain, so that one computation of the addresses serves every vector."""
        return "plain"

    @property
    def can_be_sized(self) -> bool:
        """The baseline is the user's own, so no."""
        return False

    @property
    def follows_rates(self) -> bool:
        """Whether the expansion does."""
        return self.expansion.follows_rates

    def layouts(self) -> dict[str, Self]:
        """The only one."""
        return {self.layout_name: self}

    def resolved(self) -> Self:
        """The same: there is no layout to name."""
        return self

    def is_met_by(self, existing: FilterSpec, *, is_rebuilt: bool = False) -> bool:
        """Whether the existing filter has an equal spec."""
        return self == existing

    def for_keys(self, keys: int, target_error: float | None = None) -> Self:
        """The same: its sizes are the user's own. Raises SpecError for an error."""
        if target_error is not None:
            raise SpecError("a flexible filter has no target error of its own: give a whole spec")
        return self

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Stage `index`, 2^(speed - 1) times the baseline."""
        speed = self.expansion.speed(index, rates)
        bits = flexible.vector_bits(self.baseline_bits, speed)
        capacity = flexible.vector_capacity(self.baseline_capacity, speed)
        return StageSpec(
            geometry=BY_NAME[self.layout_name](
                scheme=SCHEMES[self.scheme], slice_bits=bits, hashes=self.hashes
            ),
            capacity=capacity,
            fill_limit=1.0,
            target_error=plain_error(bits, self.hashes, capacity),
            full_by=FullBy.KEYS,
        )

    def promised_error(self, stages: abc.Sequence[StageSpec]) -> float:
        """The error of a chain of these full vectors, with room for luck."""
        return chain_error_with_luck(stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain form, with that of the expansion in it."""
        # Not super(): dataclass(slots=True) makes a new class, which the bare form does not know.
        return FilterSpec.to_dict(self) | {"expansion": self.expansion.to_dict()}
