"""Layout plain: one array of bits, and each hash of a key sets one anywhere in it.

    address of hash j    position j among slice_bits

The arithmetic that plain and sliced vectors share is here too: in both every bit is set by the
hashes independently of the others, so the error is the fill to the power of the hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bloomstore.hashing import h3, spread
from bloomstore.hashing.spread import Words
from bloomstore.layout.contract import MAX_HASHES, Geometry, LayoutCode, SchemeCode
from bloomstore.theory import sharing, vector
from bloomstore.theory.sizing import Sizing, size_plain

_MOST_FILL = 1.0 - 1e-9  # where no fill takes so many new keys, the formulas still need one


class PlainGeometry(Geometry):
    """One slice, shared by all hashes."""

    __slots__ = ()
    layout: ClassVar[LayoutCode] = LayoutCode.PLAIN

    @classmethod
    def size(cls, capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
        """The least vector for this many keys at this error."""
        return _size(capacity, error, hashes, margin)

    @classmethod
    def hashes_at(cls, error: float) -> int | None:
        """The number of hashes by the paper's rule, ceil(log2(1/error))."""
        return min(MAX_HASHES, vector.optimal_hashes(error))

    @classmethod
    def offered_when_full(cls, sizing: Sizing) -> float:
        """How many keys a vector of this size meets for each new one until it is full."""
        return sharing.offered_per_new(sizing.fill_limit, sizing.hashes)

    @property
    def slices(self) -> int:
        """One."""
        return 1

    def addresses(self, prints: Words, j: int) -> Words:
        """The bit addresses that hash j gives fingerprints."""
        if self.scheme is SchemeCode.H3:
            return self.shifted_addresses(h3.addresses48(prints[:, 0], j), j)
        position = spread.positions(prints[:, 0], prints[:, 1], j, self.slice_bits)
        return position + np.uint64(self._slice_start(j))

    def addresses_of_one(self, fingerprint: bytes) -> list[int]:
        """The bit addresses of all hashes of one fingerprint."""
        first = int.from_bytes(fingerprint[:8], "little")
        second = int.from_bytes(fingerprint[8:], "little")
        hashes, bits = range(self.hashes), self.slice_bits
        if self.scheme is SchemeCode.H3:
            shift = h3.ROWS - (bits.bit_length() - 1)
            positions = [h3.address48_of_one(first, j) >> shift for j in hashes]
        else:
            positions = [spread.position_of_one(first, second, j, bits) for j in hashes]
        return [self._slice_start(j) + position for j, position in enumerate(positions)]

    def error_with(self, keys: float) -> float:
        """The error that is expected of a vector with this many different keys."""
        return vector.plain_error(self.slice_bits, self.hashes, keys)

    def error_at(self, set_bits: int, bits: NDArray[np.uint8] | None = None) -> float:
        """The fill to the power of the hashes. Exact, and of a sliced vector an upper bound."""
        return min(1.0, set_bits / self.vector_bits) ** self.hashes

    def error_when_damaged(self, set_bits: int, shares: Sequence[float]) -> float:
        """Each bit of a key may lie in the damaged share s: (s + (1 - s) fill)^hashes."""
        fill = set_bits / self.vector_bits
        return float((shares[0] + (1.0 - shares[0]) * fill) ** self.hashes)

    def keys_at_fill(self, fill: float) -> float:
        """How many different keys are expected to fill the vector so far."""
        return vector.keys_at_fill_plain(self.slice_bits, self.hashes, fill)

    def _keys_and_sigma(self, set_bits: int) -> tuple[float, float]:
        keys = vector.distinct_keys_plain(self.slice_bits, self.hashes, set_bits)
        return keys, vector.plain_standard_error(self.slice_bits, self.hashes, keys)

    def offered_per_new(self, error: float) -> float:
        """How many keys a vector was offered for each that was new, until it had this error."""
        return sharing.offered_per_new(error ** (1.0 / self.hashes), self.hashes)

    def error_when_counted_full(self, capacity: int, sigmas: float) -> tuple[float, float]:
        """The error after this many new keys, by the fill that luck may have raised."""
        throws = self.hashes * capacity / self.vector_bits
        expected = sharing.fill_at_new_load(throws, self.hashes)
        offered = capacity * sharing.offered_per_new(min(expected, _MOST_FILL), self.hashes)
        fill = expected + sigmas * sqrt(self._variance(offered)) / self.vector_bits
        error: float = min(fill, 1.0) ** self.hashes
        return error, sharing.plain_moment(error, self.hashes)

    def _variance(self, keys: float) -> float:
        """Variance of the set bits after this many keys."""
        return vector.plain_variance(self.slice_bits, self.hashes, keys)


@lru_cache(maxsize=4096)
def _size(capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
    return size_plain(capacity, error, hashes=hashes, margin=margin)
