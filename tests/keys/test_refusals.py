"""Whatever cannot be read as a key is refused by an error of ours that names its place."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bloomstore.errors import KeysChanged, KeyTypeError, KeyValueError
from bloomstore.keys import fingerprint, fingerprint_chunks, fingerprints


def released() -> memoryview:
    view = memoryview(bytearray(b"abc"))
    view.release()
    return view


class WrongOffset(tzinfo):
    def utcoffset(self, when: datetime | None) -> Any:
        return 5

    def dst(self, when: datetime | None) -> None: ...

    def tzname(self, when: datetime | None) -> None: ...


class Unequal(datetime):
    def __ne__(self, other: object) -> bool:
        raise ValueError("not comparable")


class Liar:
    """Says that it is of a type that it is not."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind


class Faceless:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ValueError("no class")


class BrokenTuple(tuple[Any, ...]):  # noqa: SLOT001
    def __iter__(self) -> Any:
        raise KeyError("broken")


UNREADABLE: list[Any] = [
    released(),
    ("a", (1, released())),
    datetime(2024, 1, 1, tzinfo=tzinfo()),  # type: ignore[abstract]
    datetime(2024, 1, 1, tzinfo=WrongOffset()),
    Unequal(2024, 1, 1),
    object.__new__(UUID),
    BrokenTuple((1,)),
    Faceless(),
    *map(Liar, (int, str, bytes, float, tuple, Decimal, UUID, date, datetime, bytearray)),
]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_a_key_that_cannot_be_read_is_refused_by_its_place(number: int) -> None:
    key = UNREADABLE[number]  # pytest itself cannot look at all of them
    with pytest.raises(KeyValueError, match="is not a key: it cannot be read"):
        fingerprint(key)
    column = np.empty(4, object)
    column[:] = [1, 2, 3, key]
    batches: list[Any] = [[1, "b", 3, key], (1, 2, 3, key), column]
    for keys in [*batches, iter(batches[0])]:
        with pytest.raises(KeyValueError, match=r"^key 3 of the batch: .*cannot be read"):
            list(fingerprint_chunks(keys, chunk_keys=2))
    for keys in batches:
        with pytest.raises(KeyValueError, match=r"^key 3 of the batch: .*cannot be read"):
            fingerprints(keys)


def test_a_subclass_is_read_by_the_methods_of_its_base() -> None:
    class Id(UUID):
        bytes = b"other"

    class Day(date):
        def toordinal(self) -> int:
            return 5

    assert fingerprint(Id(int=5)) == fingerprint(UUID(int=5))
    assert fingerprint(Day(2024, 1, 1)) == fingerprint(date(2024, 1, 1))


FAR = 2**60
WITHOUT_VALUE = [
    np.array([65, 66, 67, 0x110000], np.uint32).view("U1"),
    pa.array([0, 1, 2, FAR], pa.timestamp("us")),
    pa.array([0, 1, 2, FAR], pa.timestamp("s")),
    pa.array([0, 1, 2, 2**30], pa.date32()),
    pa.array([0, 1, 2, FAR], pa.timestamp("s", "+13:00")),
    pa.array([9, 9, 0, 1, 2, FAR], pa.timestamp("us")).slice(2),
    pa.chunked_array([pa.array([0, 1], pa.date32()), pa.array([2, 2**30], pa.date32())]),
    pl.Series([0, 1, 2, FAR]).cast(pl.Datetime("us")),
    pl.Series([0, 1, 2, FAR]).cast(pl.Datetime("ms")),
    pl.Series([0, 1, 2, -FAR]).cast(pl.Datetime("ms")),
    pl.Series([0, 1, 2, 2**30], dtype=pl.Int32).cast(pl.Date),
]


@pytest.mark.parametrize("keys", WITHOUT_VALUE, ids=lambda keys: f"{getattr(keys, 'dtype', '')}")
def test_a_value_that_python_does_not_have_is_refused_by_its_place(keys: Any) -> None:
    with pytest.raises(KeyValueError, match=r"^key 3 of the batch: "):
        fingerprints(keys)
    for size in (1, 2, 100):
        with pytest.raises(KeyValueError, match=r"^key 3 of the batch: "):
            list(fingerprint_chunks(keys, chunk_keys=size))


def test_polars_times_at_the_ends_of_the_calendar_are_keys() -> None:
    ends = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)]
    for unit in ("ms", "us"):
        assert len(fingerprints(pl.Series(ends, dtype=pl.Datetime(unit)))) == 2
    assert len(fingerprints(pl.Series([date.min, date.max]))) == 2
    with pytest.raises(KeyTypeError, match="key 1 of the batch: None"):
        fingerprints(pl.Series([date.min, None]))


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(KeyValueError, match=r"^key 0 of the batch: it has no value in Python"):
        fingerprints(pa.array([0, 1], pa.timestamp("s", "Nowhere/No")))


def dictionary(indices: list[int], values: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values, safe=False)


WORDS = pa.array(["a", "b", "c", "d", "e"])


def test_slices_of_dictionaries_equal_single_keys() -> None:
    unused = pa.array([UUID(int=5).bytes, UUID(int=6).bytes], pa.uuid())
    for values in (
        WORDS,
        WORDS.cast(pa.string_view()),
        pa.array([b"a", b"b", b"a fairly long value", b"d", b""], pa.binary_view()),
        pa.array([date(2024, 1, day) for day in range(1, 6)]),
        pa.array([True, False, True, False, True]),
        pa.array([0.5, float("nan"), 2.5, 3.5, None], pa.float16()),
        WORDS.dictionary_encode(),
        pa.array([UUID(int=n).bytes for n in range(5)], unused.type),
    ):
        indices = [2, 0, 3, 2, 3, 0]
        whole = dictionary(indices, values)
        alone = [values[at].as_py() for at in indices]
        for first in range(6):
            for count in range(6 - first):
                part = whole.slice(first, count)
                expected = [fingerprint(key) for key in alone[first : first + count]]
                assert [bytes(row) for row in fingerprints(part)] == expected


@pytest.mark.parametrize(
    "keys",
    [
        dictionary([0, 1, 0, 7], WORDS),
        dictionary([0, 1, 0, -1], WORDS),
        dictionary([0, 1, 0, 1, 1, 7], WORDS[:2]).slice(2),
        dictionary([0, 1, 0, 1, 1, -1, 0, 0], WORDS[:2]).slice(2),
        pa.StringArray.from_buffers(
            5, pa.py_buffer(np.array([0, 0, 1, 1, 9, 3], "i4")), pa.py_buffer(b"abc")
        ),
        pa.StringArray.from_buffers(
            5, pa.py_buffer(np.array([0, 1, 2, 3, 1, 3], "i4")), pa.py_buffer(b"abc")
        ),
    ],
    ids=range(6),
)
def test_arrow_arrays_that_lead_out_of_their_memory_are_refused(keys: Any) -> None:
    with pytest.raises(KeyValueError, match=r"^key 3 of the batch: .*leads out of the Arrow array"):
        fingerprints(keys)
    with pytest.raises(KeyValueError, match=r"^key 3 of the batch: .*leads out of the Arrow array"):
        list(fingerprint_chunks(keys, chunk_keys=2))


@pytest.mark.parametrize("view", [(20, 0, 5, 0), (20, 0, 0, 0), (-20, 0, 0, 0), (13, 0, 0, -1)])
def test_arrow_views_that_lead_out_of_their_memory_are_refused(view: tuple[int, ...]) -> None:
    views = np.array([(1, 65, 0, 0), view], "i4")
    keys = pa.Array.from_buffers(
        pa.string_view(), 2, [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"abc")]
    )
    with pytest.raises(KeyValueError, match=r"^key 1 of the batch: .*leads out of the Arrow array"):
        fingerprints(keys)


def test_what_only_looks_iterable_is_refused() -> None:
    class NoIterator:
        def __iter__(self) -> Any:
            return 5

    keys: Any = NoIterator()
    with pytest.raises(KeyTypeError, match="NoIterator is not a batch of keys"):
        fingerprints(keys)
    with pytest.raises(KeyTypeError, match="NoIterator is not a batch of keys"):
        fingerprint_chunks(keys)


class Meddler(tzinfo):
    """A zone that does something else each time when it is asked: here it stands for a thread."""

    def __init__(self, meddle: Callable[[], Any]) -> None:
        self._meddle = meddle

    def utcoffset(self, when: datetime | None) -> timedelta:
        self._meddle()
        return timedelta()

    def dst(self, when: datetime | None) -> None: ...

    def tzname(self, when: datetime | None) -> None: ...


@pytest.mark.parametrize("kind", [list, deque, set, dict.fromkeys])
def test_a_container_that_changes_while_it_is_read_is_refused(kind: Any) -> None:
    def meddle() -> None:
        if ready:  # a set asks for the offset to hash the key
            keys.popitem() if isinstance(keys, dict) else keys.pop()

    ready = False
    keys: Any = kind([datetime(2024, 1, day, tzinfo=Meddler(meddle)) for day in range(1, 13)])
    ready = True
    with pytest.raises(KeysChanged, match="of keys changed while it was read"):
        list(fingerprint_chunks(keys, chunk_keys=4))


def test_a_list_that_gets_longer_is_refused_and_says_so() -> None:
    keys: list[Any] = []
    keys += [datetime(2024, 1, 1, tzinfo=Meddler(lambda: keys.append(0))), 1, 2]
    with pytest.raises(KeysChanged, match=r"the list of keys .*: 3 keys when .*, now 4") as caught:
        list(fingerprint_chunks(keys, chunk_keys=2))
    assert (caught.value.before, caught.value.now) == (3, 4)


def test_a_series_that_gets_longer_is_refused() -> None:
    keys = pd.Series([0] * 10, dtype=object)
    keys[0] = datetime(2024, 1, 1, tzinfo=Meddler(lambda: keys.loc.__setitem__(10, 0)))
    with pytest.raises(KeysChanged):
        list(fingerprint_chunks(keys, chunk_keys=4))


def test_errors_of_a_generator_stay_what_they_are() -> None:
    def keys() -> Any:
        yield datetime(2024, 1, 1, tzinfo=UTC)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        list(fingerprint_chunks(keys()))
