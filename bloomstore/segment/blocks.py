"""Checksums over 64 KiB blocks of a vector, true as of the last checkpoint.

In: a vector and the identity of its segment, out: crc32c per block. The store id, segment number
and block number go into the checksum, so that a block of another file or place never fits. Zero
blocks have checksums like all others.

64 KiB: verifying a block costs 6 us at 11 GB/s, about one cold page fault, and 10^8 keys at 1 %
have 1.9 k blocks, 7.6 KB of checksums.

Not here: where checksums are kept (catalog), what a damaged block answers (store: maybe).
"""

from __future__ import annotations

import collections.abc as abc
import struct
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.layout.contract import Geometry
from bloomstore.segment.header import BLOCK_BYTES, SegmentHeader

# Blocks as (first, one after the last), in order, none of them twice.
Ranges = tuple[tuple[int, int], ...]

_JOINED_PRINTS = 1 << 14  # their addresses stay in the processor's cache
_SEGMENT = struct.Struct("<16sQ")
_BLOCK = struct.Struct("<Q")


def block_checksums(
    header: SegmentHeader, vector: NDArray[np.uint8], blocks: abc.Iterable[int]
) -> NDArray[np.uint32]:
    """Checksums of these blocks as they are now, in their order."""
    return _checksums(header, vector, np.fromiter(blocks, np.int64))[0]


def touched_blocks(geometry: Geometry, batches: abc.Iterable[NDArray[np.uint64]]) -> set[int]:
    """Blocks that hold a bit of any of these fingerprints.

    Ends when it has found all: 10^6 keys of a rebuild have touched them after the first thousands.
    """
    bits = np.uint64(8 * BLOCK_BYTES)
    every = -(-geometry.vector_bytes // BLOCK_BYTES)
    touched: set[int] = set()
    for prints in _joined(batches):
        for j in range(geometry.hashes):
            # Not np.unique: its first call imports numpy.ma, and an interrupt in the middle of that
            # leaves a numpy that nothing in the process can use.
            blocks = (geometry.addresses(prints, j) // bits).astype(np.int64)
            touched.update(np.flatnonzero(np.bincount(blocks)).tolist())
        if len(touched) == every:
            break
    return touched


def _joined(batches: abc.Iterable[NDArray[np.uint64]]) -> abc.Iterator[NDArray[np.uint64]]:
    """The same fingerprints in fewer batches: a journal of single adds has one row per key."""
    waiting: list[NDArray[np.uint64]] = []
    count = 0
    for prints in batches:
        waiting.append(prints)
        count += len(prints)
        if count >= _JOINED_PRINTS:
            yield np.concatenate(waiting)
            waiting, count = [], 0
    if waiting:
        yield np.concatenate(waiting)


def zero_checksums(header: SegmentHeader) -> NDArray[np.uint32]:
    """Checksums of a new vector, without reading its pages into memory."""
    return _checksums_of(header, 0x00, range(header.blocks))


def ones_checksums(header: SegmentHeader, blocks: abc.Iterable[int]) -> NDArray[np.uint32]:
    """Checksums that these blocks have when all their bits are set."""
    return _checksums_of(header, 0xFF, blocks)


def _checksums_of(
    header: SegmentHeader, byte: int, blocks: abc.Iterable[int]
) -> NDArray[np.uint32]:
    length = header.spec.geometry.vector_bytes
    filled = np.full(min(length, BLOCK_BYTES), byte, np.uint8)
    identity = _identity(header)
    return np.fromiter(
        (
            google_crc32c.extend(
                google_crc32c.value(identity + _BLOCK.pack(block)),
                filled[: length - block * BLOCK_BYTES],
            )
            for block in blocks
        ),
        np.uint32,
    )


def fill_blocks(vector: NDArray[np.uint8], blocks: abc.Iterable[int]) -> None:
    """Sets all bits of these blocks: they answer "maybe"."""
    for block in blocks:
        vector[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = 0xFF


def joined_ranges(blocks: abc.Iterable[int]) -> Ranges:
    """The same blocks as ranges: a run of lost pages is one of them."""
    ranges: list[tuple[int, int]] = []
    for block in sorted(set(blocks)):
        if ranges and ranges[-1][1] == block:
            ranges[-1] = ranges[-1][0], block + 1
        else:
            ranges.append((block, block + 1))
    return tuple(ranges)


def ranges_from(pairs: list[Any], geometry: Geometry) -> Ranges:
    """Ranges that were read from somewhere. Raises ValueError if a vector cannot have them."""
    last = 0
    for pair in pairs:
        if not isinstance(pair, list) or list(map(type, pair)) != [int, int]:
            raise ValueError(f"damaged has {pair!r}, expected two blocks")
        if not last <= pair[0] < pair[1] <= -(-geometry.vector_bytes // BLOCK_BYTES):
            raise ValueError(f"damaged has {pair!r}, out of place")
        last = pair[1]
    return tuple((first, end) for first, end in pairs)


def blocks_in(ranges: Ranges) -> set[int]:
    """Inverse of joined_ranges."""
    return {block for first, end in ranges for block in range(first, end)}


def bits_in(geometry: Geometry, ranges: Ranges) -> int:
    """How many bits the blocks in these ranges have, those between two slices among them."""
    every = geometry.vector_bytes
    return 8 * sum(min(end * BLOCK_BYTES, every) - first * BLOCK_BYTES for first, end in ranges)


def damaged_blocks(
    header: SegmentHeader,
    vector: NDArray[np.uint8],
    checksums: NDArray[np.uint32],
    blocks: abc.Iterable[int],
) -> tuple[list[int], int]:
    """Which of these blocks lack the checksum they must have, and the set bits of all of them."""
    asked = np.sort(np.fromiter(blocks, np.int64))
    found, set_bits = _checksums(header, vector, asked)
    return asked[found != checksums[asked]].tolist(), set_bits


def _checksums(
    header: SegmentHeader, vector: NDArray[np.uint8], blocks: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], int]:
    return kernels.block_checksums(vector, _identity(header), BLOCK_BYTES, blocks)


def _identity(header: SegmentHeader) -> bytes:
    return _SEGMENT.pack(header.store_id, header.number)
