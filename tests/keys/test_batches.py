"""A batch gives for each key what the key gives alone, whatever the container."""

import array
import math
from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.errors import KeyTypeError, KeyValueError, SpecError
from bloomstore.keys import fingerprint, fingerprint_chunks, fingerprints

SEED = 99


class Number(IntEnum):
    ONE = 1


class HasIndex:
    def __index__(self) -> int:
        return 1


def singly(keys: Any) -> bytes:
    return b"".join(fingerprint(key, SEED) for key in keys)


def flat(prints: Any) -> bytes:
    assert prints.dtype == np.uint64
    assert prints.ndim == 2
    assert prints.shape[1] == 2
    assert prints.flags.c_contiguous
    return bytes(prints.astype("<u8").tobytes())


def check(keys: Any, alone: Any) -> None:
    """All three ways through a container give the fingerprints of the keys alone."""
    expected = singly(alone)
    assert flat(fingerprints(keys, SEED)) == expected
    parts = list(fingerprint_chunks(keys, SEED, chunk_keys=2))
    assert b"".join(map(flat, parts)) == expected
    assert all(0 < len(part) <= 2 for part in parts)
    assert b"".join(map(flat, fingerprint_chunks(keys, SEED))) == expected


LISTS: list[list[Any]] = [
    [],
    [1, 2, -3],
    [1, True, False],
    [True, False],
    [Number.ONE, 1],
    [2**63 - 1, -(2**63)],
    [2**63, -1],  # numpy alone would make floats of these
    [2**64, 1],
    [1, 2.0, 3.5],
    [0.5, 1.0, -0.0, 1e300, math.inf, -(2.0**63), 2.0**63],
    [2**53 + 1, 0.5],
    ["a", "", "\u65e5\u672c"],
    ["a", "\ud800", "b"],
    [b"a", b"", b"\0"],
    [b"a", bytearray(b"b"), memoryview(b"c")],
    ["a", b"a", 1, (1, "x")],
    [Decimal("0.1"), UUID(int=5), (1, (2, "x"))],
    [np.int64(1), np.int64(-5)],
    [np.uint64(2**64 - 1), np.uint64(1)],
    [np.int64(-1), np.uint64(2**64 - 1)],
    [np.float32(0.1), np.float32(2)],
    [np.longdouble(0.5), np.longdouble(2)],
    [np.bool(True), np.bool(False)],
    [np.str_("a"), np.str_("b")],
]


@pytest.mark.parametrize("keys", LISTS)
def test_lists_tuples_and_iterators_equal_single_keys(keys: list[Any]) -> None:
    check(keys, keys)
    check(tuple(keys), keys)
    check(deque(keys), keys)
    assert flat(fingerprints((key for key in keys), SEED)) == singly(keys)


@given(keys=st.lists(st.integers() | st.text() | st.binary() | st.booleans(), max_size=8))
def test_mixed_lists_equal_single_keys(keys: list[Any]) -> None:
    check(keys, keys)


@given(keys=st.lists(st.integers(-(2**64), 2**64), max_size=8))
def test_lists_of_ints_equal_single_keys(keys: list[int]) -> None:
    check(keys, keys)


@given(keys=st.lists(st.floats(allow_nan=False), max_size=8))
def test_lists_and_arrays_of_floats_equal_single_keys(keys: list[float]) -> None:
    check(keys, keys)
    check(np.array(keys, dtype=np.float64), keys)


@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=8))
def test_arrays_of_uint64_equal_single_keys(keys: list[int]) -> None:
    check(np.array(keys, dtype=np.uint64), keys)


ARRAYS = [
    np.arange(-3, 4, dtype=dtype) for dtype in ("i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8")
] + [
    np.array([0, 1, 7], dtype=dtype) for dtype in ("u1", "<u2", ">u2", "<u4", ">u4")
] + [
    np.array([2**64 - 1, 5, 2**63, 2**63 - 1], dtype="<u8"),
    np.array([2**64 - 1, 5, 2**63], dtype=">u8"),
    np.array([True, False, True]),
    np.array([0.5, 3, -0.0, 60000], dtype="<f2"),
    np.array([0.1, 3, 1e30], dtype="<f4"),
    np.array([0.1, 3, 1e300, math.inf], dtype=">f8"),
    np.array([0.5, 3], dtype=np.longdouble),
    np.array(["a", "bc", "", "x\0"]),
    np.array(["\u65e5", "bc"], dtype=">U4"),
    np.array([b"a", b"bc\0", b""]),
    np.array([1, "a", b"a", 0.5, (1, 2)], dtype=object)[:4],
    np.array(["a", "longer than sixteen bytes"], dtype=np.dtypes.StringDType()),
    np.ma.MaskedArray([1, 2, 3]),
    np.array([], dtype=np.int64),
    np.array([], dtype="U1"),
    np.array([], dtype=object),
    np.array([], dtype=float),
]  # fmt: skip


@pytest.mark.parametrize("keys", ARRAYS, ids=lambda a: f"{a.dtype.str}-{len(a)}")
def test_numpy_arrays_equal_single_keys(keys: Any) -> None:
    alone = keys.tolist() if keys.dtype != np.longdouble else list(keys)
    check(keys, alone)
    check(keys[::-1], alone[::-1])
    check(keys[1::2], alone[1::2])


def test_arrays_of_int64_that_lie_or_are_named_unusually_equal_single_keys() -> None:
    big = np.arange(5, dtype=">i8")
    check(big.byteswap().view(big.dtype.newbyteorder()), [0, 1, 2, 3, 4])
    unaligned = np.frombuffer(b"\1" + np.arange(5).tobytes(), np.int64, offset=1)
    assert not unaligned.flags.aligned
    check(unaligned, [0, 1, 2, 3, 4])


def test_read_only_and_strided_arrays_are_read_in_place() -> None:
    table = np.arange(12, dtype=np.int64).reshape(3, 4)
    table.flags.writeable = False
    check(table[:, 1], [1, 5, 9])
    check(table[1, :], [4, 5, 6, 7])
    assert table.tolist()[0] == [0, 1, 2, 3]
    halves = np.array([0.5, 7.0])
    halves.flags.writeable = False
    check(halves, [0.5, 7.0])


def test_sets_ranges_views_and_mappings_are_iterated() -> None:
    check({5, "a"}, list({5, "a"}))
    check(frozenset({1}), [1])
    check(range(5), [0, 1, 2, 3, 4])
    check(range(0), [])
    check(range(2**63 - 2, 2**63 + 2), [2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1])
    mapping = {"a": 1, "b": 2}
    check(mapping, ["a", "b"])
    check(mapping.values(), [1, 2])
    check(mapping.items(), [("a", 1), ("b", 2)])
    check(array.array("q", [1, 2]), [1, 2])


def test_generators_are_drawn_one_chunk_at_a_time() -> None:
    drawn = []

    def keys() -> Iterator[int]:
        for key in range(10):
            drawn.append(key)
            yield key

    chunks = fingerprint_chunks(keys(), chunk_keys=4)
    assert drawn == []
    sizes = []
    for number, prints in enumerate(chunks, 1):
        sizes.append(len(prints))
        assert len(drawn) == min(4 * number, 10)
    assert sizes == [4, 4, 2]


def test_an_endless_generator_gives_chunks() -> None:
    def keys() -> Iterator[str]:
        while True:
            yield "again"

    prints = next(iter(fingerprint_chunks(keys())))
    assert prints.shape == (16384, 2)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("alice", "a str is one key, not many: use add or `in`"),
        (b"alice", "a bytes is one key, not many: use add or `in`"),
        (bytearray(b"a"), "a bytearray is one key"),
        (memoryview(b"a"), "a memoryview is one key"),
        (5, "an int is one key, not many"),
        (0.5, "a float is one key"),
        (np.int64(5), "an int64 is one key"),
        (np.str_("a"), "a str_ is one key"),
        (UUID(int=1), "a UUID is one key"),
        (None, "None is not a batch of keys; accepted: an iterable"),
        (np.zeros((2, 2)), "array of 2 dimensions is not a batch of keys; accepted: 1 dimension"),
        (np.array(5), "array of 0 dimensions"),
        (np.array([1j]), "array of dtype complex128 is not a batch of keys; accepted: dtypes"),
        (np.array(["2024-01-01"], dtype="M8[s]"), r"array of dtype datetime64\[s\]"),
        (np.array([1], dtype="m8[s]"), r"array of dtype timedelta64\[s\]"),
        (np.array([(1,)], dtype=[("a", int)]), "array of dtype .*is not a batch"),
    ],
)
def test_what_is_no_batch_is_refused(keys: Any, message: str) -> None:
    with pytest.raises(KeyTypeError, match=message):
        fingerprints(keys)
    with pytest.raises(KeyTypeError, match=message):
        next(fingerprint_chunks(keys))


@pytest.mark.parametrize("keys", ["alice", 5, None, np.zeros((2, 2))])
def test_chunks_refuse_before_the_first_is_asked_for(keys: Any) -> None:
    with pytest.raises(KeyTypeError):
        fingerprint_chunks(keys)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ([1] * 17 + [None], KeyTypeError, "key 17 of the batch: None is not a key; accepted: int"),
        ([1] * 17 + [[]], KeyTypeError, r"key 17 of the batch: \[\] of type list"),
        ([0.5] * 17 + [math.nan], KeyValueError, "key 17 of the batch: NaN is not a key"),
        (["a"] * 17 + [math.nan], KeyValueError, "key 17 of the batch: NaN is not a key"),
        ([1] * 17 + [HasIndex()], KeyTypeError, "key 17 of the batch: .*HasIndex"),
        (np.array([0.5] * 17 + [math.nan]), KeyValueError, "key 17 of the batch: NaN"),
        (np.array([0.5] * 17 + [math.nan], "f4"), KeyValueError, "key 17 of the batch: NaN"),
        (np.array([1] * 17 + [None]), KeyTypeError, "key 17 of the batch: None"),
        (
            np.ma.MaskedArray([1] * 18, [False] * 17 + [True]),
            KeyTypeError,
            "key 17 of the batch: None",
        ),
        ([(1, 2)] * 17 + [(1, None)], KeyTypeError, "key 17 of the batch: component 1: None"),
        ([np.timedelta64(1, "s")], KeyTypeError, "key 0 of the batch: .*timedelta64"),
    ],
)
def test_a_refused_key_is_named_by_its_place(
    keys: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fingerprints(keys)
    values = keys.tolist() if isinstance(keys, np.ndarray) else keys
    for size in (1, 5, 100):
        with pytest.raises(error, match=message):
            list(fingerprint_chunks(keys, chunk_keys=size))
        with pytest.raises(error, match=message):
            list(fingerprint_chunks(iter(values), chunk_keys=size))


def test_chunks_have_at_least_one_key() -> None:
    with pytest.raises(SpecError, match="chunk_keys must be at least 1, got 0"):
        fingerprint_chunks([1], chunk_keys=0)


def test_keys_given_are_not_changed() -> None:
    keys = np.array([2**64 - 1, 1], dtype=np.uint64)
    floats = np.array([0.5, 2.0, 1e300])
    fingerprints(keys)
    fingerprints(floats)
    assert keys.tolist() == [2**64 - 1, 1]
    assert floats.tolist() == [0.5, 2.0, 1e300]
