"""Checksums over 64 KiB blocks of a vector: what was true at the last checkpoint.

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

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bloomstore.hashing.addresses import bit_addresses
from bloomstore.segment.header import BLOCK_BYTES, SegmentHeader
from bloomstore.spec.geometry import Geometry

_PLACE = struct.Struct("<16sQQ")
_JOINED_PRINTS = 1 << 14  # their addresses stay in the processor's cache


def block_checksum(header: SegmentHeader, vector: NDArray[np.uint8], block: int) -> int:
    """Checksum of one block as it is now."""
    return _extended(header, block, vector[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])


def block_checksums(
    header: SegmentHeader, vector: NDArray[np.uint8], blocks: abc.Iterable[int]
) -> NDArray[np.uint32]:
    """Checksums of these blocks, in their order."""
    return np.fromiter((block_checksum(header, vector, block) for block in blocks), np.uint32)


def touched_blocks(geometry: Geometry, batches: abc.Iterable[NDArray[np.uint64]]) -> set[int]:
    """Blocks that hold a bit of any of these fingerprints."""
    bits = np.uint64(8 * BLOCK_BYTES)
    found: set[int] = set()
    for prints in _joined(batches):
        for j in range(geometry.hashes):
            found.update(np.unique(bit_addresses(geometry, prints, j) // bits).tolist())
    return found


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
    length = header.spec.geometry.vector_bytes
    zeros = np.zeros(min(length, BLOCK_BYTES), np.uint8)
    return np.fromiter(
        (
            _extended(header, block, zeros[: length - block * BLOCK_BYTES])
            for block in range(header.blocks)
        ),
        np.uint32,
    )


def damaged_blocks(
    header: SegmentHeader,
    vector: NDArray[np.uint8],
    checksums: NDArray[np.uint32],
    blocks: abc.Iterable[int] | None = None,
) -> list[int]:
    """Which of these blocks (all by default) do not have the checksum they must have."""
    asked = range(header.blocks) if blocks is None else blocks
    return [
        block for block in asked if block_checksum(header, vector, block) != int(checksums[block])
    ]


def _extended(header: SegmentHeader, block: int, piece: NDArray[np.uint8]) -> int:
    place = _PLACE.pack(header.store_id, header.number, block)
    return int(google_crc32c.extend(google_crc32c.value(place), piece))
