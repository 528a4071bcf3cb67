"""The array form of Murmur gives what mmh3 gives, and no process gives anything else."""

import os
import subprocess
import sys
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.hashing.fingerprint import (
    CHUNK_WORDS,
    INT_TAG,
    gather,
    murmur,
    murmur_int64,
    murmur_seed,
    murmur_uint64_beyond,
)
from bloomstore.keys import TagCode, encode, fingerprint

seeds = st.integers(0, 2**32 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def by_mmh3(values: Any, seed: int) -> bytes:
    folded = (seed ^ (3 * 0x9E3779B1)) & 0xFFFFFFFF
    encoded = [int(value).to_bytes(8, "little", signed=True) for value in values]
    return b"".join(mmh3.mmh3_x64_128_digest(key, folded) for key in encoded)


@given(values=st.lists(int64s, max_size=20), seed=seeds)
def test_array_form_equals_mmh3(values: list[int], seed: int) -> None:
    prints = murmur_int64(np.array(values, dtype=np.int64), seed)
    assert prints.shape == (len(values), 2)
    assert prints.astype("<u8").tobytes() == by_mmh3(values, seed)


@pytest.mark.parametrize("extra", [-1, 0, 1, CHUNK_WORDS + 5])
def test_blocks_join_without_a_seam(extra: int) -> None:
    values = np.random.default_rng(extra + 1).integers(-(2**63), 2**63 - 1, CHUNK_WORDS + extra)
    prints = murmur_int64(values, 5)
    assert prints.flags.c_contiguous
    assert prints.astype("<u8").tobytes() == by_mmh3(values, 5)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", ">u4", "<i8", ">i8", "?"])
def test_every_width_and_byte_order_counts_by_value(dtype: str) -> None:
    values = np.arange(100).astype(dtype)[::-3]
    assert murmur_int64(values, 9).astype("<u8").tobytes() == by_mmh3(values, 9)


@given(values=st.lists(st.integers(2**63, 2**64 - 1), min_size=1, max_size=9), seed=seeds)
def test_large_uint64_equals_the_nine_byte_encoding(values: list[int], seed: int) -> None:
    prints = murmur_uint64_beyond(np.array(values, dtype=np.uint64), seed, TagCode.BIGINT)
    assert prints.astype("<u8").tobytes() == b"".join(fingerprint(value, seed) for value in values)


@given(
    key=st.text(st.characters()) | st.binary() | st.integers() | st.floats(allow_nan=False),
    seed=seeds,
)
def test_fast_paths_for_one_key_equal_the_two_steps(key: Any, seed: int) -> None:
    tag, encoded = encode(key)
    folded = (seed ^ (tag * 0x9E3779B1)) & 0xFFFFFFFF
    assert fingerprint(key, seed) == mmh3.mmh3_x64_128_digest(encoded, folded)
    assert fingerprint(key, seed) == murmur(encoded, tag, seed)
    assert folded == murmur_seed(tag, seed)


def test_tag_of_ints_is_the_same_in_both_places() -> None:
    assert TagCode(INT_TAG) is TagCode.INT


def test_gathered_fingerprints_are_writable_pairs() -> None:
    prints = gather([bytes(range(16)), bytes(16)])
    assert prints.tolist() == [[0x0706050403020100, 0x0F0E0D0C0B0A0908], [0, 0]]
    assert prints.flags.writeable
    assert gather([]).shape == (0, 2)


def test_fingerprints_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    program = (
        "from bloomstore.keys import *\n"
        "from decimal import Decimal\n"
        "keys = {'alice', 'bob', b'x', 1, 2**70, 0.5, Decimal('0.1'), ('a', 1)}\n"
        "print(sorted(fingerprint(key).hex() for key in keys))\n"
        "print(sorted(map(list, fingerprints(keys).tolist())))\n"
    )

    def run(hash_seed: str) -> str:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert run("1") == run("4321") != ""
