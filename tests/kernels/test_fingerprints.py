"""Fingerprints made by kernels equal those made key by key with mmh3."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.keys import fingerprint

SEEDS = st.integers(0, 2**32 - 1)
PLAIN = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(max_codepoint=127), max_size=100),
    st.binary(max_size=100),
    st.integers(-(2**63), 2**63 - 1),
)


class Name(str):
    """A str by inheritance only."""

    __slots__ = ()


def one_by_one(keys: list[Any], seed: int) -> list[list[int]]:
    rows = [np.frombuffer(fingerprint(key, seed), dtype="<u8").tolist() for key in keys]
    return [[int(word) for word in row] for row in rows]


@given(text=st.binary(max_size=200), seed=SEEDS)
def test_murmur_equals_mmh3(compiled: ModuleType, text: bytes, seed: int) -> None:
    assert compiled.murmur128(text, seed) == mmh3.mmh3_x64_128_digest(text, seed)


def test_murmur_equals_mmh3_at_every_length_and_alignment(compiled: ModuleType) -> None:
    memory = np.random.default_rng(1).integers(0, 256, 100, dtype=np.uint8).tobytes()
    for start in range(9):
        for end in range(start, 80):
            part = memoryview(memory)[start:end]
            assert compiled.murmur128(part, 7) == mmh3.mmh3_x64_128_digest(bytes(part), 7)


@given(keys=st.lists(PLAIN, max_size=50), seed=SEEDS)
def test_a_list_of_plain_keys_gives_what_each_key_gives(
    compiled: ModuleType, keys: list[Any], seed: int
) -> None:
    prints = compiled.fingerprints_of_list(keys, seed)
    assert (prints.shape, prints.dtype) == ((len(keys), 2), np.uint64)
    assert prints.flags.c_contiguous
    assert prints.tolist() == one_by_one(keys, seed)


@pytest.mark.parametrize(
    "key",
    [True, 1.0, None, 2**63, -(2**63) - 1, Name("a"), "\ud800", "a\udfff", bytearray(b"a"),
     np.int64(1), np.str_("a"), ("a",)],
    ids=repr,
)  # fmt: skip
def test_a_list_with_any_other_key_is_left_to_the_caller(compiled: ModuleType, key: Any) -> None:
    assert compiled.fingerprints_of_list(["a", 1, key], 0) is None
    assert compiled.fingerprints_of_list([key], 0) is None


def test_the_numpy_twin_leaves_every_list_to_the_caller() -> None:
    from bloomstore.kernels import numpy_twin

    assert numpy_twin.fingerprints_of_list(["a"], 0) is None


def test_encoding_a_str_leaves_nothing_in_it(compiled: ModuleType) -> None:
    key = "\u65e5" * 1000
    before = key.__sizeof__()
    compiled.fingerprints_of_list([key], 0)
    assert key.__sizeof__() == before


@given(
    keys=st.lists(PLAIN, max_size=20),
    start=st.integers(-25, 25),
    stop=st.none() | st.integers(-25, 25),
)
def test_a_part_of_a_list_gives_what_its_slice_gives(
    compiled: ModuleType, keys: list[Any], start: int, stop: int | None
) -> None:
    prints = compiled.fingerprints_of_list(keys, 5, start, stop)
    assert prints.tolist() == one_by_one(keys[start:stop], 5)


@pytest.mark.parametrize(
    "key",
    [sign * ((1 << bits) + near) for bits in (0, 29, 30, 31, 59, 60, 61, 62) for near in (-1, 0, 1)
     for sign in (1, -1)] + [2**63 - 1, -(2**63), -(2**63) + 1],
)  # fmt: skip
def test_integers_around_the_digits_of_python_are_read_exactly(
    compiled: ModuleType, key: int
) -> None:
    assert compiled.fingerprints_of_list([key], 0).tolist() == one_by_one([key], 0)


@given(keys=st.lists(st.binary(max_size=40), max_size=30), seed=SEEDS, first=st.integers(0, 9))
def test_slices_of_one_buffer_give_what_each_key_gives(
    compiled: ModuleType, keys: list[bytes], seed: int, first: int
) -> None:
    memory = memoryview(b"x" * first + b"".join(keys) + b"y")
    offsets = first + np.cumsum([0, *map(len, keys)], dtype=np.int64)
    prints = compiled.fingerprints_of_slices(memory, offsets, 2, seed)
    assert (prints.shape, prints.dtype) == ((len(keys), 2), np.uint64)
    assert prints.flags.c_contiguous
    assert prints.tolist() == one_by_one(list(keys), seed)


@pytest.mark.parametrize("offsets", [[0, 4], [-1, 2], [2, 1], [0, 3, 2**62], [1, 3, 2]], ids=repr)
def test_a_slice_outside_of_its_buffer_is_refused(compiled: ModuleType, offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="not inside 3 bytes"):
        compiled.fingerprints_of_slices(memoryview(b"abc"), np.array(offsets, np.int64), 2, 0)


@pytest.mark.parametrize("offsets", [[], [0]], ids=repr)
def test_no_slices_give_no_fingerprints(compiled: ModuleType, offsets: list[int]) -> None:
    prints = compiled.fingerprints_of_slices(memoryview(b""), np.array(offsets, np.int64), 2, 0)
    assert prints.shape == (0, 2)


def test_the_numpy_twin_leaves_slices_to_the_caller() -> None:
    from bloomstore.kernels import numpy_twin

    assert numpy_twin.fingerprints_of_slices(memoryview(b""), np.zeros(1, np.int64), 2, 0) is None


@pytest.mark.parametrize("keys", [("a",), {"a"}, "abc", None, np.array([1])], ids=repr)
def test_what_is_no_list_is_refused(compiled: ModuleType, keys: Any) -> None:
    with pytest.raises(TypeError):
        compiled.fingerprints_of_list(keys, 0)


@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), seed=SEEDS)
def test_an_array_of_integers_gives_what_each_key_gives(
    twin: ModuleType, keys: list[int], seed: int
) -> None:
    prints = twin.fingerprints_of_int64(np.array(keys, dtype=np.int64), seed)
    assert (prints.shape, prints.dtype) == ((len(keys), 2), np.uint64)
    assert prints.flags.c_contiguous
    assert prints.tolist() == one_by_one(keys, seed)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, np.uint64), "of type int64, got uint64"),
        (np.zeros(4, np.int32), "of type int64, got int32"),
        (np.zeros(4, ">i8"), "of type int64, got >i8"),
        (np.zeros(8, np.int64)[::2], "C-contiguous"),
        (np.zeros((2, 2), np.int64), "one dimension, got 2"),
        ([1, 2], "numpy array, got list"),
    ],
    ids=range(6),
)
def test_an_array_of_anything_else_is_refused(twin: ModuleType, array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        twin.fingerprints_of_int64(array, 0)
