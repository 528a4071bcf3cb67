"""Layout blocked: every key sets all its bits in one line of 512 bits, so a lookup touches one.

    address of hash j    line * 512 + position j in the line

The lines get unequal numbers of keys, so the error is a mixture over their loads and depends on
how evenly they are filled, not only on the fill (theory/blocked.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bloomstore.errors import SpecError
from bloomstore.hashing import spread
from bloomstore.hashing.spread import Words
from bloomstore.layout.contract import LINE_BITS, Geometry, LayoutCode, SchemeCode
from bloomstore.theory import blocked, sharing
from bloomstore.theory.sizing import Sizing, size_blocked

# Lines that are looked at for the error of a vector: 1 MiB, less than a millisecond. Keys choose
# lines by their hash, so the first are as good a sample as any.
_SAMPLED_LINES = 1 << 14


class BlockedGeometry(Geometry):
    """One slice of whole lines."""

    __slots__ = ()
    layout: ClassVar[LayoutCode] = LayoutCode.BLOCKED
    schemes: ClassVar[tuple[SchemeCode, ...]] = (SchemeCode.SPREAD,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slice_bits % LINE_BITS:
            raise SpecError(
                f"a blocked vector has whole lines of {LINE_BITS} bits, got {self.slice_bits} bits"
            )

    @classmethod
    def size(cls, capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
        """The least vector for this many keys at this error."""
        return _size(capacity, error, hashes, margin)

    @classmethod
    def hashes_at(cls, error: float) -> int | None:  # noqa: ARG003
        """None: the best number depends on how crowded the lines are."""
        return None

    @classmethod
    def offered_when_full(cls, sizing: Sizing) -> float:
        """How many keys a vector of this size meets for each new one until it is full."""
        return _offered_when_full(sizing)

    @property
    def slices(self) -> int:
        """One."""
        return 1

    @property
    def lines(self) -> int:
        """How many lines the vector has."""
        return self.slice_bits // LINE_BITS

    @property
    def lines_touched(self) -> int:
        """One, which is what this layout is for."""
        return 1

    def addresses(self, prints: Words, j: int) -> Words:
        """The bit addresses that hash j gives fingerprints."""
        first, second = prints[:, 0], prints[:, 1]
        line = spread.lines(first, self.lines)
        return line * np.uint64(LINE_BITS) + spread.positions_in_line(first, second, j)

    def addresses_of_one(self, fingerprint: bytes) -> list[int]:
        """The bit addresses of all hashes of one fingerprint."""
        first = int.from_bytes(fingerprint[:8], "little")
        second = int.from_bytes(fingerprint[8:], "little")
        start = spread.line_of_one(first, self.lines) * LINE_BITS
        return [
            start + spread.position_in_line_of_one(first, second, j) for j in range(self.hashes)
        ]

    def error_with(self, keys: float) -> float:
        """The error that is expected of a vector with this many different keys."""
        return blocked.blocked_error(self.lines, self.hashes, keys)

    def error_at(self, set_bits: int, bits: NDArray[np.uint8] | None = None) -> float:
        """The error by the fills of the lines, or without them the one expected of the mean fill.

        The lines of a small vector may be filled more or less evenly than is expected.
        """
        if bits is not None:
            lines = bits[: _SAMPLED_LINES * LINE_BITS // 8].view(np.uint64).reshape(-1, 8)
            counts = np.bitwise_count(lines).sum(axis=1, dtype=np.int64)
            return float(np.mean((counts / LINE_BITS) ** self.hashes))
        fill = min(1.0, set_bits / self.vector_bits)
        return blocked.blocked_error_at_fill(self.lines, self.hashes, fill)

    def error_when_damaged(self, set_bits: int, shares: Sequence[float]) -> float:
        """The whole key lies in the damaged share s, or nothing of it: s + (1 - s) error."""
        return shares[0] + (1.0 - shares[0]) * self.error_at(set_bits)

    def keys_at_fill(self, fill: float) -> float:
        """How many different keys are expected to fill the vector so far."""
        return blocked.blocked_keys_at_fill(self.lines, self.hashes, fill)

    def _keys_and_sigma(self, set_bits: int) -> tuple[float, float]:
        keys = blocked.distinct_keys_blocked(self.lines, self.hashes, set_bits)
        return keys, blocked.blocked_standard_error(self.lines, self.hashes, keys)

    def offered_per_new(self, error: float) -> float:
        """How many keys a vector was offered for each that was new, until it had this error."""
        if not 0.0 < error < 1.0:
            return sharing.offered_per_new(error ** (1.0 / self.hashes), self.hashes)
        mean = error * _mean_over_last(self.lines, self.hashes, float(f"{error:.2g}"))
        return 1.0 / (1.0 - mean) if mean < 1.0 else math.inf

    def error_when_counted_full(self, capacity: int, sigmas: float) -> tuple[float, float]:
        """The error after this many new keys, by how unequal luck may have made the lines."""
        lines, hashes = self.lines, self.hashes
        offered = capacity / (1.0 - blocked.blocked_mean_error(lines, hashes, capacity))
        expected = blocked.blocked_error(lines, hashes, offered)
        square = blocked.blocked_moment(lines, hashes, offered, 2 * hashes)
        error = expected + sigmas * math.sqrt(max(0.0, square - expected**2) / lines)
        return error, blocked.blocked_moment(lines, hashes, offered, 2 * hashes - 1)


@lru_cache(maxsize=4096)
def _size(capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
    return size_blocked(capacity, error, hashes=hashes, margin=margin)


@lru_cache(maxsize=4096)
def _offered_when_full(sizing: Sizing) -> float:
    lines, hashes = sizing.slice_bits // LINE_BITS, sizing.hashes
    full = blocked.blocked_keys_at_fill(lines, hashes, sizing.fill_limit)
    return 1.0 / (1.0 - blocked.blocked_mean_error(lines, hashes, full))


@lru_cache(maxsize=1024)  # stages of one kind have much the same errors
def _mean_over_last(lines: int, hashes: int, error: float) -> float:
    """The mean error of a vector that is filled until it has this error, over the latter.

    By the formulas of whole vectors of this many lines; the ratio depends little on how many.
    """
    low, high = 0.0, float(LINE_BITS * lines)
    while blocked.blocked_error(lines, hashes, high) < error:
        low, high = high, 2.0 * high
    for _ in range(24):
        middle = (low + high) / 2.0
        if blocked.blocked_error(lines, hashes, middle) < error:
            low = middle
        else:
            high = middle
    return blocked.blocked_mean_error(lines, hashes, high) / error
