"""Arrow arrays, pandas and polars Series give what their values give as single keys."""

import math
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.errors import KeyTypeError, KeyValueError
from bloomstore.keys import fingerprint, fingerprint_chunks, fingerprints

SEED = 4
TEXTS = ["", "a", "twelve bytes", "thirteen byte", "\u65e5\u672c\u8a9e" * 9, "nul\0", "a"]
BLOBS = [b"", b"a", b"x" * 12, b"y" * 13, b"z" * 40, b"\0", b"a"]


def check(keys: Any, alone: Any) -> None:
    expected = b"".join(fingerprint(key, SEED) for key in alone)
    prints = fingerprints(keys, SEED)
    assert prints.flags.c_contiguous
    assert prints.shape == (len(alone), 2)
    assert prints.astype("<u8").tobytes() == expected
    for size in (1, 3, 1000):
        parts = list(fingerprint_chunks(keys, SEED, chunk_keys=size))
        assert b"".join(part.astype("<u8").tobytes() for part in parts) == expected


ARROW = (
    [pa.array([0, 1, 7, 100], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
    + [pa.array([0, 1, 7, 100], t) for t in (pa.uint8(), pa.uint16(), pa.uint32())]
    + [pa.array([2**64 - 1, 0, 2**63], pa.uint64()), pa.array([-(2**63), 2**63 - 1])]
    + [pa.array([0.5, 3, 60000], t) for t in (pa.float16(), pa.float32(), pa.float64())]
    + [pa.array([0.1, 1e300, math.inf]), pa.array([True, False, True] * 9)]
    + [pa.array(TEXTS, t) for t in (pa.string(), pa.large_string(), pa.string_view())]
    + [pa.array(BLOBS, t) for t in (pa.binary(), pa.large_binary(), pa.binary_view())]
    + [pa.array([b"abcd", b"efgh", b"abcd"], pa.binary(4)), pa.array([b"", b""], pa.binary(0))]
    + [pa.array(TEXTS * 3).dictionary_encode(), pa.array([5, 2**40, 5]).dictionary_encode()]
    + [pa.array([date(2024, 2, 29), date(1, 1, 1)]), pa.array([Decimal("1.50"), Decimal("2.10")])]
    + [pa.array([datetime(2024, 1, 1, 5), datetime(1, 1, 1)], pa.timestamp("us"))]
    + [pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC"))]
    + [pa.array([UUID(int=5).bytes, UUID(int=6).bytes], pa.uuid())]
)


@pytest.mark.parametrize("keys", ARROW, ids=lambda a: f"{a.type}-{len(a)}")
def test_arrow_arrays_equal_single_keys(keys: Any) -> None:
    alone = keys.to_pylist()
    check(keys, alone)
    for first in range(len(keys)):
        check(keys.slice(first, 3), alone[first : first + 3])
    check(keys.slice(1).slice(1), alone[2:])
    check(keys.slice(0, 0), [])
    check(pa.array([], keys.type), [])
    check(pa.chunked_array([keys, keys.slice(1), keys.slice(0, 0)]), alone + alone[1:])
    check(pa.chunked_array([], keys.type), [])


@given(texts=st.lists(st.text(max_size=20), max_size=10), first=st.integers(0, 10))
def test_arrow_strings_of_any_kind_equal_single_keys(texts: list[str], first: int) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        check(pa.array(texts, kind).slice(first), texts[first:])
    check(pa.array(texts).dictionary_encode().slice(first), texts[first:])


def test_arrow_buffers_that_are_not_aligned_equal_single_keys() -> None:
    bounds = pa.py_buffer(b"\1" + np.array([0, 1, 3]).tobytes()).slice(1)
    texts = pa.LargeStringArray.from_buffers(2, bounds, pa.py_buffer(b"abc"))
    check(texts, ["a", "bc"])
    numbers = pa.Array.from_buffers(
        pa.int64(), 3, [None, pa.py_buffer(b"\1" + np.arange(3).tobytes()).slice(1)]
    )
    check(numbers, [0, 1, 2])


def test_the_empty_null_array_has_no_keys() -> None:
    check(pa.array([], pa.null()), [])


NULLS = [
    pa.array([1] * 5 + [None, None]),
    pa.array(["a"] * 5 + [None]),
    pa.array(["a"] * 5 + [None], pa.string_view()),
    pa.array([0.5] * 5 + [None]),
    pa.array(["a"] * 5 + [None]).dictionary_encode(),
    pa.chunked_array([[1, 2, 3], [4, 5, None]]),
    pa.array([9, None, 1, 2, 3, 4, 5, None]).slice(2),
    pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0, 0, 1]), pa.array(["a", None])),
    pl.Series([1] * 5 + [None]),
    pl.Series(["a"] * 5 + [None]),
]


@pytest.mark.parametrize("keys", NULLS, ids=lambda a: f"{type(a).__name__}-{len(a)}")
def test_nulls_are_refused_by_their_place(keys: Any) -> None:
    with pytest.raises(KeyTypeError, match=r"^key 5 of the batch: None is not a key; accepted"):
        fingerprints(keys)
    with pytest.raises(KeyTypeError, match=r"^key 5 of the batch: None is not a key; accepted"):
        list(fingerprint_chunks(keys, chunk_keys=2))


def test_dictionary_values_that_no_row_uses_do_no_harm() -> None:
    for values in (["a", None], [0.5, math.nan]):
        keys = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(values))
        check(keys, [values[0]] * 2)


def test_nan_in_a_column_is_refused_by_its_place() -> None:
    values = [0.5, 1.0, math.nan]
    for keys in (
        pa.array(values),
        pa.array(values, pa.float32()),
        pd.Series(values),
        pl.Series(values),
    ):
        with pytest.raises(KeyValueError, match="key 2 of the batch: NaN is not a key"):
            list(fingerprint_chunks(keys, chunk_keys=1))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.array([[1]]), "Arrow array of type list<.*> is not a batch of keys; accepted: ints"),
        (pa.array([{"a": 1}]), "Arrow array of type struct"),
        (pa.array([1], pa.timestamp("ns")), r"Arrow array of type timestamp\[ns\]"),
        (pa.array([1], pa.duration("s")), "Arrow array of type duration"),
        (pa.table({"a": [1]}), "pyarrow Table is not a batch of keys; accepted: one column"),
        (pa.scalar(5), "pyarrow Int64Scalar is not a batch"),
        (pd.DataFrame({"a": [1]}), "pandas DataFrame is not a batch of keys; accepted: one column"),
        (pl.DataFrame({"a": [1]}), "polars DataFrame is not a batch of keys"),
        (
            pl.Series([datetime(2024, 1, 1)], dtype=pl.Datetime("ns")),
            "polars Series of Datetime.*ns",
        ),
        (pl.Series([[1]]), "key 0 of the batch: .*of type list"),
        ([pa.scalar(5)], "key 0 of the batch: .*pyarrow.lib.Int64Scalar"),
        (pd.Series([pd.NA, 1], dtype="Int64"), "key 0 of the batch: <NA> of type pandas"),
        (pd.Series(pd.to_timedelta([1], unit="s")), "key 0 of the batch: Timedelta"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_columns_without_keys_are_refused(keys: Any, message: str) -> None:
    with pytest.raises(KeyTypeError, match=message):
        fingerprints(keys)
    with pytest.raises(KeyTypeError, match=message):
        list(fingerprint_chunks(keys))


PANDAS = [
    pd.Series([1, 2, 2**62]),
    pd.Series([1, 2, 3], dtype="uint8", index=[5, 6, 5]),
    pd.Series([2**64 - 1, 1], dtype="uint64"),
    pd.Series([0.5, 3.0]),
    pd.Series([True, False]),
    pd.Series(TEXTS),
    pd.Series(TEXTS, dtype=object),
    pd.Series(TEXTS, dtype="category"),
    pd.Series(BLOBS),
    pd.Series([1, "a", 0.5, (1, 2)], dtype=object),
    pd.Series([1, 2, 3], dtype="Int64"),
    pd.Series([1, 2], dtype="int64[pyarrow]"),
    pd.Series(pd.to_datetime(["2024-01-01 05:00", "1999-12-31 00:00"])),
    pd.Series([], dtype="int64"),
    pd.Series([], dtype=object),
    pd.Index([3, 4, 5]),
    pd.Index(["a", "b"]),
    pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
    pd.RangeIndex(5),
    pd.array([1, 2, 3]),
]


@pytest.mark.parametrize("keys", PANDAS, ids=lambda s: f"{type(s).__name__}-{s.dtype}")
def test_pandas_columns_equal_single_keys(keys: Any) -> None:
    check(keys, list(keys))
    check(keys[::-1], list(keys)[::-1])


POLARS = [
    pl.Series([1, 2, -(2**63)]),
    pl.Series([2**64 - 1, 1], dtype=pl.UInt64),
    pl.Series([1, 2], dtype=pl.Int8),
    pl.Series([0.1, 3.0], dtype=pl.Float32),
    pl.Series([0.1, 3.0]),
    pl.Series([True, False, True]),
    pl.Series(TEXTS),
    pl.Series(TEXTS, dtype=pl.Categorical),
    pl.Series(BLOBS),
    pl.Series([date(2024, 1, 1)]),
    pl.Series([datetime(2024, 1, 1, 5)]),
    pl.Series([Decimal("1.50")]),
    pl.Series([], dtype=pl.Int64),
    pl.Series([], dtype=pl.String),
    pl.Series([]),
]


@pytest.mark.parametrize("keys", POLARS, ids=lambda s: f"{s.dtype}-{len(s)}")
def test_polars_series_equal_single_keys(keys: Any) -> None:
    check(keys, keys.to_list())
    check(keys.reverse(), keys.to_list()[::-1])


def test_chunked_polars_series_equal_single_keys() -> None:
    keys = pl.Series([1, 2]).append(pl.Series([3, 4]))
    check(keys, [1, 2, 3, 4])


def test_timestamps_with_nanoseconds_are_refused_by_their_place() -> None:
    keys = pd.Series(
        pd.to_datetime(["2024-01-01 00:00:00.000000000", "2024-01-01 00:00:00.000000001"])
    )
    with pytest.raises(KeyValueError, match=r"key 1 of the batch: .*it has nanoseconds"):
        fingerprints(keys)


def test_timestamps_beyond_the_year_9999_are_refused() -> None:
    keys = pa.array(np.array([2**60], dtype="M8[us]"))
    with pytest.raises(KeyValueError, match=r"^key 0 of the batch: it has no value"):
        fingerprints(keys)


def test_no_column_library_is_imported() -> None:
    program = (
        "import sys, bloomstore.keys as k\n"
        "list(k.fingerprint_chunks([1, 'a'])); k.fingerprints({0.5})\n"
        "print([m for m in ('pyarrow', 'pandas', 'polars') if m in sys.modules])\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
