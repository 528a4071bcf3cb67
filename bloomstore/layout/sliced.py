"""Layout sliced: an array of bits for each hash, so that every key sets exactly `hashes` bits.

    address of hash j    j * stride_bits + position j among slice_bits

Each slice starts on a cache line. Positions and errors are those of a plain vector otherwise; the
mean fill of the slices gives an upper bound of the error: prod p_j <= (mean p)^hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import ClassVar

from bloomstore.layout.contract import LayoutCode
from bloomstore.layout.plain import PlainGeometry
from bloomstore.theory import vector
from bloomstore.theory.sizing import Sizing, size_sliced


class SlicedGeometry(PlainGeometry):
    """A slice for each hash."""

    __slots__ = ()
    layout: ClassVar[LayoutCode] = LayoutCode.SLICED

    @classmethod
    def size(cls, capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
        """The least vector for this many keys at this error."""
        return _size(capacity, error, hashes, margin)

    @property
    def slices(self) -> int:
        """One slice for each hash."""
        return self.hashes

    def _slice_start(self, j: int) -> int:
        return j * self.stride_bits

    def error_with(self, keys: float) -> float:
        """The error that is expected of a vector with this many different keys."""
        return vector.sliced_error(self.slice_bits, self.hashes, keys)

    def error_when_damaged(self, set_bits: int, shares: Sequence[float]) -> float:
        """A block lies in one slice or in two: the product of s_j + (1 - s_j) fill over slices."""
        fill = set_bits / self.vector_bits
        return prod(share + (1.0 - share) * fill for share in shares)

    def keys_at_fill(self, fill: float) -> float:
        """How many different keys are expected to fill the vector so far."""
        return vector.keys_at_fill_sliced(self.slice_bits, fill)

    def _keys_and_sigma(self, set_bits: int) -> tuple[float, float]:
        keys = vector.distinct_keys_sliced(self.slice_bits, set_bits / self.hashes)
        return keys, vector.sliced_standard_error(self.slice_bits, self.hashes, keys)

    def _variance(self, keys: float) -> float:
        return vector.sliced_variance(self.slice_bits, self.hashes, keys)


@lru_cache(maxsize=4096)
def _size(capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
    return size_sliced(capacity, error, hashes=hashes, margin=margin)
