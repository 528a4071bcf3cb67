"""What the bits of one vector mean, in four numbers: layout, hash scheme, slice size, hashes.

Vectors of equal geometry can be combined; a kernel needs nothing else to find a bit. All sizes
are plain Python integers, so nothing here knows a 32-bit limit.

    layout    slices  a key sets bits
    plain     1       anywhere in the vector, `hashes` of them
    sliced    hashes  one in each slice
    blocked   1       `hashes` of them, all in one block of 512 bits (a cache line)

Not here: how good a geometry is (theory), which one a family takes (families).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bloomstore.errors import SpecError

CACHE_LINE_BITS = 512
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
    """How to read the bits of one vector. Equal geometries combine."""

    layout: LayoutCode
    scheme: SchemeCode
    slice_bits: int
    hashes: int

    def __post_init__(self) -> None:
        if not 1 <= self.hashes <= MAX_HASHES:
            raise SpecError(f"hashes must be in 1..{MAX_HASHES}, got {self.hashes}")
        if not 1 <= self.slice_bits <= MAX_SLICE_BITS:
            raise SpecError(f"slice_bits must be in 1..2^48, got {self.slice_bits}")
        if self.layout is LayoutCode.BLOCKED:
            if self.slice_bits % CACHE_LINE_BITS:
                raise SpecError(
                    f"a blocked vector has whole blocks of {CACHE_LINE_BITS} bits,"
                    f" got {self.slice_bits} bits"
                )
            if self.scheme is SchemeCode.H3:
                raise SpecError("layout 'blocked' takes hash scheme 'spread', got 'h3'")
        if self.scheme is SchemeCode.H3 and self.slice_bits & (self.slice_bits - 1):
            raise SpecError(f"hash scheme 'h3' needs a power of two, got {self.slice_bits} bits")

    @property
    def slices(self) -> int:
        """How many slices the vector has."""
        return self.hashes if self.layout is LayoutCode.SLICED else 1

    @property
    def vector_bits(self) -> int:
        """Bits that keys can set: the M of the papers, and what fill is a share of."""
        return self.slices * self.slice_bits

    @property
    def stride_bits(self) -> int:
        """Distance between the starts of two slices: each starts on a cache line."""
        return -(-self.slice_bits // CACHE_LINE_BITS) * CACHE_LINE_BITS

    @property
    def vector_bytes(self) -> int:
        """Bytes the vector takes, a multiple of 64."""
        return self.slices * self.stride_bits // 8

    def __str__(self) -> str:
        shape = f"{self.slices} x {self.slice_bits}" if self.slices > 1 else f"{self.slice_bits}"
        name = f"{self.layout.name.lower()}/{self.scheme.name.lower()}"
        return f"{name} {shape} bits, {self.hashes} hashes"
