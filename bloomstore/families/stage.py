"""One stage as a family planned it: its geometry, its capacity, and when it is full.

In: numbers from a family, out: limits for the kernels. Families that promise an error go by fill:
a stage is full as soon as one more key could push its fill above the limit. Families that promise
a load (Flexible, Dynamic) go by new keys. Adding known keys again changes neither.

Not here: fill and counts of a living stage (the catalog has them).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bloomstore.errors import SpecError
from bloomstore.layout.contract import Geometry

# Stands for "no limit" in the kernels' signed 64-bit counters.
UNLIMITED = 1 << 62


class FullBy(IntEnum):
    """Written into catalog rows. Append only: a code is never changed or used again."""

    FILL = 1
    KEYS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One stage as a family planned it."""

    geometry: Geometry
    capacity: int
    fill_limit: float
    target_error: float
    full_by: FullBy = FullBy.FILL

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise SpecError(f"capacity must be at least 1, got {self.capacity}")
        if not 0.0 < self.fill_limit <= 1.0:
            raise SpecError(f"fill_limit must be in (0, 1], got {self.fill_limit}")
        if not 0.0 < self.target_error < 1.0:
            raise SpecError(f"target_error must be in (0, 1), got {self.target_error}")
        if self.bits_left(0) < self.geometry.hashes:
            raise SpecError(f"a stage of {self.geometry} has no room for a single key")

    def bits_left(self, set_bits: int) -> int:
        """How many more bits may be set before the stage is full."""
        if self.full_by is FullBy.KEYS:
            return UNLIMITED
        return int(self.fill_limit * self.geometry.vector_bits) - set_bits

    def keys_left(self, keys: int) -> int:
        """How many more new keys may be added before the stage is full."""
        return self.capacity - keys if self.full_by is FullBy.KEYS else UNLIMITED

    def is_full(self, set_bits: int, keys: int) -> bool:
        """Whether one more new key could break the stage's promise."""
        return self.bits_left(set_bits) < self.geometry.hashes or self.keys_left(keys) < 1
