"""Bit addresses: where in a vector of a given geometry a fingerprint's bits lie.

In: a geometry and fingerprints; out: addresses counted from the first bit of the vector. Address b
is bit b % 8 of byte b // 8. This is the readable definition that both kernels follow: layouts and
hash schemes differ in the two functions below and nowhere else.

    layout    address of hash j
    plain     position j
    sliced    j * stride_bits + position j
    blocked   block * 512 + position j in the block

Invariants
  1. Addresses are part of the file format (pinned by tests/golden/positions.json).
  2. Every address is below 8 * geometry.vector_bytes, whatever the fingerprint.
  3. Both functions give the same addresses.

Not here: reading and setting the bits (kernels), the arithmetic itself (spread.py, h3.py).
"""

from __future__ import annotations

import numpy as np

from bloomstore.hashing import h3, spread
from bloomstore.hashing.spread import Words
from bloomstore.spec.geometry import CACHE_LINE_BITS, Geometry, LayoutCode, SchemeCode


def bit_addresses(geometry: Geometry, prints: Words, j: int) -> Words:
    """The addresses that hash j gives fingerprints (uint64[n, 2])."""
    first, second = prints[:, 0], prints[:, 1]
    if geometry.layout == LayoutCode.BLOCKED:
        block = spread.blocks(first, geometry.slice_bits // CACHE_LINE_BITS)
        inside = spread.positions_in_block(first, second, j)
        return block * np.uint64(CACHE_LINE_BITS) + inside
    if geometry.scheme == SchemeCode.H3:
        return shifted_addresses(geometry, h3.addresses48(first, j), j)
    position = spread.positions(first, second, j, geometry.slice_bits)
    return position + np.uint64(_slice_start(geometry, j))


def shifted_addresses(geometry: Geometry, found48: Words, j: int) -> Words:
    """The addresses of hash j from its 48-bit ones, which serve every size (the shift query)."""
    shift = h3.ROWS - (geometry.slice_bits.bit_length() - 1)
    return (found48 >> np.uint64(shift)) + np.uint64(_slice_start(geometry, j))


def bit_addresses_of_one(geometry: Geometry, fingerprint: bytes) -> list[int]:
    """The addresses of all hashes of one fingerprint (16 bytes), in the order of the hashes."""
    first = int.from_bytes(fingerprint[:8], "little")
    second = int.from_bytes(fingerprint[8:], "little")
    hashes, bits = range(geometry.hashes), geometry.slice_bits
    if geometry.layout == LayoutCode.BLOCKED:
        start = spread.block_of_one(first, bits // CACHE_LINE_BITS) * CACHE_LINE_BITS
        return [start + spread.position_in_block_of_one(first, second, j) for j in hashes]
    if geometry.scheme == SchemeCode.H3:
        shift = h3.ROWS - (bits.bit_length() - 1)
        found = [h3.address48_of_one(first, j) >> shift for j in hashes]
    else:
        found = [spread.position_of_one(first, second, j, bits) for j in hashes]
    return [_slice_start(geometry, j) + position for j, position in enumerate(found)]


def _slice_start(geometry: Geometry, j: int) -> int:
    return j * geometry.stride_bits if geometry.layout == LayoutCode.SLICED else 0
