"""Geometry: what the bits of one vector mean, and everything that its layout decides.

A geometry is four numbers: layout, hash scheme, slice size and hashes. Each layout is a subclass
in a file of its own, and nothing outside this room asks which of them it has: callers ask the
geometry for a size, an address, an error or a number of keys. A new layout is one more file, a
code, and a line in layouts.py. All sizes are plain Python integers, so nothing here knows a
32-bit limit.

Invariants
  1. Vectors of equal geometry can be combined; a kernel needs nothing else to find a bit.
  2. Addresses are part of the file format (pinned by tests/golden/positions.json). They count from
     the first bit of the vector: address b is bit b % 8 of byte b // 8.
  3. Every address is below 8 * vector_bytes, whatever the fingerprint, and the addresses of one
     key are the same whether it is asked alone or with others.

Not here: the formulas (theory), the arithmetic of positions (hashing), reading and setting the
bits (kernels), which layout a family takes (families).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bloomstore.errors import SpecError
from bloomstore.hashing import h3
from bloomstore.hashing.spread import Words
from bloomstore.theory.sizing import Sizing

# A cache line: slices start on one, and a blocked vector keeps each key inside one.
LINE_BITS = 512
MAX_HASHES = 64
# 2^48 bits are 32 TiB: the H3 matrices have 48 rows, and no file system here holds a larger file.
MAX_SLICE_BITS = 1 << 48


class LayoutCode(IntEnum):
    """Written into segment headers. Append only: a code is never changed or used again."""

    PLAIN = 1
    SLICED = 2
    BLOCKED = 3


class SchemeCode(IntEnum):
    """Written into segment headers. Append only: a code is never changed or used again."""

    SPREAD = 1
    H3 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How to read the bits of one vector. Equal geometries combine.

    Not an ABC: kernels check the type of every geometry that they are given, and `isinstance` takes
    79 ns instead of 14 for a class with that metaclass.
    """

    layout: ClassVar[LayoutCode]
    schemes: ClassVar[tuple[SchemeCode, ...]] = (SchemeCode.SPREAD, SchemeCode.H3)
    cell_bits: ClassVar[int] = 1  # bits at an address; a layout with counters has more

    scheme: SchemeCode
    slice_bits: int
    hashes: int

    def __post_init__(self) -> None:
        if not 1 <= self.hashes <= MAX_HASHES:
            raise SpecError(f"hashes must be in 1..{MAX_HASHES}, got {self.hashes}")
        if not 1 <= self.slice_bits <= MAX_SLICE_BITS:
            raise SpecError(f"slice_bits must be in 1..2^48, got {self.slice_bits}")
        self.check_scheme(self.scheme)
        if self.scheme is SchemeCode.H3 and self.slice_bits & (self.slice_bits - 1):
            raise SpecError(f"hash scheme 'h3' needs a power of two, got {self.slice_bits} bits")

    @classmethod
    def name(cls) -> str:
        """The name of the layout, as families and the command line spell it."""
        return cls.layout.name.lower()

    @classmethod
    def check_scheme(cls, scheme: SchemeCode) -> None:
        """Raises SpecError if vectors of this layout cannot be hashed by the scheme."""
        if scheme not in cls.schemes:
            allowed = " or ".join(repr(code.name.lower()) for code in cls.schemes)
            raise SpecError(
                f"layout {cls.name()!r} takes hash scheme {allowed}, got {scheme.name.lower()!r}"
            )

    # Sizes -----------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def size(cls, capacity: int, error: float, hashes: int | None, margin: float) -> Sizing:
        """The least vector for this many keys at this error; see the rule of theory/sizing.py.

        Results are cached: a catalog row is read often, and solving takes milliseconds.
        """

    @classmethod
    @abstractmethod
    def hashes_at(cls, error: float) -> int | None:
        """How many hashes a stage of a tightening chain takes; None: whatever needs least bits."""

    @classmethod
    @abstractmethod
    def offered_when_full(cls, sizing: Sizing) -> float:
        """How many keys a vector of this size meets for each new one until it is full."""

    @property
    @abstractmethod
    def slices(self) -> int:
        """How many slices the vector has."""

    @property
    def vector_bits(self) -> int:
        """Bits that keys can set: the M of the papers, and what fill is a share of."""
        return self.slices * self.slice_bits

    @property
    def stride_bits(self) -> int:
        """Distance between the starts of two slices: each starts on a cache line."""
        return -(-self.slice_bits // LINE_BITS) * LINE_BITS

    @property
    def vector_bytes(self) -> int:
        """Bytes the vector takes, a multiple of 64."""
        return self.slices * self.stride_bits // 8

    @property
    def lines_touched(self) -> int:
        """Cache lines that one lookup touches at most."""
        return self.hashes

    # Addresses -------------------------------------------------------------------------

    @abstractmethod
    def addresses(self, prints: Words, j: int) -> Words:
        """The bit addresses that hash j gives fingerprints (uint64[n, 2])."""

    @abstractmethod
    def addresses_of_one(self, fingerprint: bytes) -> list[int]:
        """The bit addresses of all hashes of one fingerprint (16 bytes), in their order."""

    def shifted_addresses(self, addresses48: Words, j: int) -> Words:
        """The addresses of hash j from its 48-bit ones, which serve every size (the shift query).

        Only for geometries of scheme H3.
        """
        shift = h3.ROWS - (self.slice_bits.bit_length() - 1)
        return (addresses48 >> np.uint64(shift)) + np.uint64(self._slice_start(j))

    def _slice_start(self, j: int) -> int:
        """The first bit of the slice that hash j sets its bits in."""
        return 0

    # Errors and keys -------------------------------------------------------------------

    @abstractmethod
    def error_with(self, keys: float) -> float:
        """The error that is expected of a vector with this many different keys."""

    @abstractmethod
    def error_at(self, set_bits: int, bits: NDArray[np.uint8] | None = None) -> float:
        """The error of a vector with this many set bits; `bits`: the vector itself, if it is there.

        Never too low on average, and exact where the layout can tell it from the bits.
        """

    @abstractmethod
    def error_when_damaged(self, set_bits: int, shares: Sequence[float]) -> float:
        """The error if a share of each slice is ones, and `set_bits` the number without damage."""

    @abstractmethod
    def keys_at_fill(self, fill: float) -> float:
        """How many different keys are expected to fill the vector so far."""

    def keys_and_sigma(self, set_bits: int) -> tuple[float, float]:
        """How many different keys the set bits tell of, and the standard error of that number.

        Keys that set no bit when they came are among them: adding their bits again would change
        nothing. Both numbers are inf for a vector without unset bits.
        """
        if set_bits == 0:
            return 0.0, 0.0
        if set_bits >= self.vector_bits:
            return float("inf"), float("inf")
        return self._keys_and_sigma(set_bits)

    @abstractmethod
    def _keys_and_sigma(self, set_bits: int) -> tuple[float, float]:
        """The same where some bits are set and some are not."""

    @abstractmethod
    def offered_per_new(self, error: float) -> float:
        """How many keys a vector was offered for each that was new, until it had this error."""

    @abstractmethod
    def error_when_counted_full(self, capacity: int, sigmas: float) -> tuple[float, float]:
        """The error of a vector that took this many new keys, and E[fill^(2 hashes - 1)].

        `sigmas`: of a vector that this many standard deviations of luck have made worse.
        """

    def __str__(self) -> str:
        shape = f"{self.slices} x {self.slice_bits}" if self.slices > 1 else f"{self.slice_bits}"
        return f"{self.name()}/{self.scheme.name.lower()} {shape} bits, {self.hashes} hashes"
