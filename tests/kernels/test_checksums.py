"""Checksums of blocks: crc32c over place, block number and bytes, and a count of set bits."""

from __future__ import annotations

import struct
from types import ModuleType

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.kernels import numpy_twin

IDENTITY = bytes(range(24))


def expected(vector: np.ndarray, block_bytes: int, block: int) -> int:
    piece = vector[block * block_bytes : (block + 1) * block_bytes].tobytes()
    return int(google_crc32c.value(IDENTITY + struct.pack("<Q", block) + piece))


@given(
    size=st.integers(0, 400),
    start=st.integers(0, 8),
    words=st.sampled_from([1, 2, 5, 8]),
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_twins_give_the_same_checksums_and_counts(
    compiled: ModuleType, size: int, start: int, words: int, seed: int, data: st.DataObject
) -> None:
    vector = np.random.default_rng(seed).integers(0, 256, size + start, dtype=np.uint8)[start:]
    count = -(-size // (8 * words))
    numbers = data.draw(st.lists(st.integers(0, count - 1), max_size=20) if count else st.just([]))
    blocks = np.array(numbers, dtype=np.int64)
    found, set_bits = compiled.block_checksums(vector, IDENTITY, 8 * words, blocks)
    twin, twin_bits = numpy_twin.block_checksums(vector, IDENTITY, 8 * words, blocks)
    assert found.dtype == twin.dtype == np.uint32
    assert found.tolist() == twin.tolist()
    assert found.tolist() == [expected(vector, 8 * words, block) for block in numbers]
    assert type(set_bits) is int
    assert set_bits == twin_bits
    assert set_bits == sum(
        int(byte).bit_count()
        for block in numbers
        for byte in vector[block * 8 * words : (block + 1) * 8 * words]
    )


def test_every_length_of_the_last_block(twin: ModuleType) -> None:
    vector = np.random.default_rng(1).integers(0, 256, 4 * 64, dtype=np.uint8)
    for length in range(3 * 64 + 1, 4 * 64 + 1):
        found, _ = twin.block_checksums(vector[:length], IDENTITY, 64, np.arange(4))
        assert found.tolist() == [expected(vector[:length], 64, block) for block in range(4)]


@pytest.mark.parametrize(
    ("place", "block_bytes", "blocks", "message"),
    [
        (IDENTITY[1:], 64, [0], "identity must have 24 bytes, got 23"),
        (IDENTITY, 0, [0], "multiple of 8, got 0"),
        (IDENTITY, 12, [0], "multiple of 8, got 12"),
        (IDENTITY, 64, [-1], "inside 100 bytes"),
        (IDENTITY, 64, [0, 2], "inside 100 bytes"),
        (IDENTITY, 64, [2**62], "inside 100 bytes"),
        (IDENTITY, 64, [[0, 1]], "one dimension, got 2"),
        (IDENTITY, 64, [0.5], "of type int64, got float64"),
    ],
    ids=range(8),
)
def test_blocks_outside_are_refused(
    twin: ModuleType, place: bytes, block_bytes: int, blocks: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        twin.block_checksums(np.zeros(100, np.uint8), place, block_bytes, np.array(blocks))
