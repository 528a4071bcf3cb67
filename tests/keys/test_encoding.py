"""Keys that are equal in Python are equal as keys; what can be equal to nothing is refused."""

import decimal
import enum
import math
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.errors import KeyTypeError, KeyValueError
from bloomstore.keys import TagCode, encode, fingerprint

BERLIN = ZoneInfo("Europe/Berlin")
REPEATED = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)  # 02:30 happens twice that night


class Colour(enum.Enum):
    RED = "red"


class Text(str, enum.Enum):  # noqa: UP042 (the older form of StrEnum is what is tested)
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Loud(str):
    def encode(self, *_: object) -> bytes:
        return b"overridden"

    __slots__ = ()


Pair = namedtuple("Pair", "left right")  # noqa: PYI024


def faces_of_int(value: int) -> list[Any]:
    """Objects of different types that are equal to an int (not all: see the guards)."""
    faces: list[Any] = [value, Decimal(value), Decimal(f"{value}.000"), Decimal(f"{value}0E-1")]
    if value in (0, 1):
        faces += [bool(value), np.bool(value)]
    if value == 1:
        faces.append(Number.ONE)
    if abs(value) < 2**1000 and float(value) == value:
        faces += [float(value), np.float64(value)]
    if abs(value) < 2**11:
        faces += [np.float16(value), np.float32(value), np.int16(value)]
    if -(2**63) <= value < 2**63:
        faces.append(np.int64(value))
    if 0 <= value < 2**64:
        faces.append(np.uint64(value))
    return faces


def faces_of_float(value: float) -> list[Any]:
    faces: list[Any] = [value, np.float64(value), Decimal(value)]
    if abs(value) < 1e38 and np.float64(np.float32(value)) == value:
        faces.append(np.float32(value))
    return faces


def faces_of_datetime(value: datetime) -> list[Any]:
    faces: list[Any] = [value, value.replace(fold=1)]
    zones = [BERLIN, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(seconds=-1))]
    faces += [value.replace(tzinfo=zone, fold=fold) for zone in zones for fold in (0, 1)]
    faces += [value.replace(tzinfo=UTC).astimezone(zone) for zone in zones]
    return faces


edges = [0, 1, -1, 255, 256, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64]
ints = st.sampled_from(edges) | st.integers(-3, 3) | st.integers(-(2**70), 2**70) | st.integers()
texts = st.text(st.characters(), max_size=4) | st.sampled_from(["", "a", "red", "\ud800"])
blobs = st.binary(max_size=3)
floats = st.floats(allow_nan=False) | st.sampled_from([0.5, -0.0, 1e300, math.inf, 0.1])
stamps = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)) | st.sampled_from(
    [datetime(2024, 10, 27, hour, 30) for hour in range(4)]
)
decimals = st.decimals(allow_nan=False, places=None).filter(lambda d: d.adjusted() < 9_000)
scalars = st.one_of(
    ints.flatmap(lambda v: st.sampled_from(faces_of_int(v))),
    floats.flatmap(lambda v: st.sampled_from(faces_of_float(v))),
    texts.flatmap(lambda v: st.sampled_from([v, np.str_(v), Loud(v)])),
    st.just(Text.RED),
    blobs.flatmap(lambda v: st.sampled_from([v, bytearray(v), memoryview(v), np.bytes_(v)])),
    stamps.flatmap(lambda v: st.sampled_from(faces_of_datetime(v))),
    decimals,
    st.dates(),
    st.uuids(),
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def plain(key: Any) -> Any:
    """The key without numpy's numbers, whose == rounds. (numpy.str_ compares as str does.)"""
    if isinstance(key, tuple):
        return tuple(map(plain, key))
    return key.item() if isinstance(key, np.number | np.bool) else key


def faces(key: Any) -> list[Any]:
    """Objects that may be equal to the key."""
    key = plain(key)
    if isinstance(key, tuple):
        return [tuple(face) for face in zip(*(map(faces, key)), strict=False)] or [(), Pair(1, 1.0)]
    if isinstance(key, Decimal | float) and math.isfinite(key) and key == int(key):
        return faces_of_int(int(key))
    if isinstance(key, int):
        return faces_of_int(int(key))
    if isinstance(key, float | Decimal):
        return [*faces_of_float(float(key)), key]
    if isinstance(key, str):
        return [str(key), np.str_(key), Loud(key), Text.RED]
    if isinstance(key, bytes | bytearray | memoryview):
        return [bytes(key), bytearray(key), memoryview(bytes(key))]
    if isinstance(key, datetime):
        return [key, key.replace(fold=1 - key.fold), key.replace(tzinfo=None)] + [
            key.astimezone(zone) for zone in (UTC, BERLIN) if key.tzinfo
        ]
    return [key]


@given(data=st.data(), left=keys)
def test_equal_keys_have_equal_fingerprints(data: st.DataObject, left: Any) -> None:
    right = data.draw(st.sampled_from(faces(left)) | keys)
    if plain(left) == plain(right):
        assert encode(left) == encode(right)
        assert fingerprint(left, 7) == fingerprint(right, 7)


@given(left=texts | blobs | ints, right=texts | blobs | ints)
def test_unequal_texts_bytes_and_ints_have_unequal_encodings(left: Any, right: Any) -> None:
    assert (encode(left) == encode(right)) == (left == right)


@given(left=keys, right=keys)
def test_the_same_encoding_means_the_same_key(left: Any, right: Any) -> None:
    if encode(left) == encode(right) and not isinstance(left, datetime | tuple):
        assert plain(left) == plain(right)


@pytest.mark.parametrize("value", edges)
def test_every_face_of_a_number_is_one_key(value: int) -> None:
    assert {encode(face) for face in faces_of_int(value)} == {encode(value)}


def test_zero_has_no_sign() -> None:
    assert encode(-0.0) == encode(Decimal("-0.00")) == encode(0) == encode(np.float32(-0.0))


def test_a_big_int_takes_the_fewest_bytes() -> None:
    assert encode(2**63) == (TagCode.BIGINT, bytes(7) + b"\x80\x00")
    assert encode(-(2**71)) == (TagCode.BIGINT, bytes(8) + b"\x80")
    assert encode(1e300) == encode(int(1e300))
    assert encode(10**20_000)[0] == TagCode.BIGINT  # ints of any size


def test_decimals_are_not_rounded_by_the_context() -> None:
    long = Decimal("0." + "1" * 50 + "0")
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.FloatOperation] = True
        context.traps[decimal.Inexact] = True
        assert encode(long) == (TagCode.DECIMAL, b"1" * 50 + b"E-50")
        assert encode(Decimal("0.5")) == encode(0.5)
        assert encode(Decimal(12345678)) == encode(12345678)
    assert encode(Decimal("0.1")) != encode(0.1)
    assert encode(Decimal("Infinity")) == encode(math.inf)
    assert encode(Decimal("1" * 400 + ".5"))[0] == TagCode.DECIMAL  # beyond the doubles


def test_integral_decimals_end_at_ten_thousand_digits() -> None:
    assert encode(Decimal("1E+9999")) == encode(10**9999)
    with pytest.raises(KeyValueError, match=r"integral Decimal of 10001 digits; accepted: up to"):
        encode(Decimal("1E+10000"))
    with pytest.raises(KeyValueError, match="integral Decimal of 1000000000 digits"):
        encode(Decimal("1E+999999999"))


def test_numpy_scalars_count_with_their_exact_value() -> None:
    assert encode(np.float32(0.1)) == encode(float(np.float32(0.1))) != encode(0.1)
    assert encode(np.longdouble(0.5)) == encode(0.5)
    between = np.longdouble(1) + np.finfo(np.longdouble).eps
    if float(between) != between:  # where a longdouble is more than a double
        with pytest.raises(KeyValueError, match="no double has exactly this value"):
            encode(between)


def test_subclasses_are_their_base() -> None:
    assert encode(np.str_("nul\0")) == encode("nul\0")  # though its .item() is "nul"
    assert encode(Text.RED) == encode("red") == encode(Loud("red")) == encode(np.str_("red"))
    assert encode(Number.ONE) == encode(1)
    assert encode(Pair(1, "x")) == encode((1, "x"))
    assert encode(pd.Timestamp(2024, 1, 1, 5)) == encode(datetime(2024, 1, 1, 5))


def test_fold_does_not_count() -> None:
    assert REPEATED.replace(fold=1) == REPEATED
    assert encode(REPEATED) == encode(REPEATED.replace(fold=1))
    assert encode(REPEATED) == encode(datetime(2024, 10, 27, 0, 30, tzinfo=UTC))


def test_a_datetime_is_no_date_and_an_aware_one_no_naive_one() -> None:
    naive = datetime(2024, 1, 1)
    tags = {encode(key)[0] for key in (naive.date(), naive, naive.replace(tzinfo=UTC))}
    assert tags == {TagCode.DATE, TagCode.DATETIME, TagCode.AWARE_DATETIME}


def test_a_zone_without_offset_leaves_a_datetime_naive() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _: datetime | None) -> None:
            return None

        dst = utcoffset
        tzname = utcoffset

    assert datetime(2024, 1, 1, tzinfo=Nowhere()) == datetime(2024, 1, 1)
    assert encode(datetime(2024, 1, 1, tzinfo=Nowhere())) == encode(datetime(2024, 1, 1))


def test_a_timestamp_of_a_repeated_hour_is_refused_on_its_second_pass() -> None:
    first = pd.Timestamp(REPEATED)
    second = pd.Timestamp(REPEATED.replace(fold=1))
    assert encode(first) == encode(first.tz_convert("UTC"))
    with pytest.raises(KeyValueError, match="second pass of a repeated hour; accepted: the same"):
        encode(second)
    assert encode(second.tz_convert("UTC"))[0] == TagCode.AWARE_DATETIME


def test_memoryviews_of_single_bytes_are_bytes() -> None:
    views: list[Any] = [memoryview(b"ab"), memoryview(b"ab").cast("b"), memoryview(b"ab").cast("c")]
    for view in views:
        assert encode(view) == encode(b"ab")
    assert encode(memoryview(b"abcd")[::2]) == encode(b"ac")
    with pytest.raises(KeyTypeError, match="memoryview of format 'H' is not a key; accepted: form"):
        encode(memoryview(b"ab").cast("H"))


def test_tuples_of_different_shape_differ() -> None:
    shapes = [(), ((),), (1, 2, 3), ((1, 2), 3), (1, (2, 3)), ("12", 3), ("1", "23"), (b"1", "23")]
    assert len({encode(shape) for shape in shapes}) == len(shapes)


def test_tuples_nest_to_a_depth_of_32() -> None:
    deep: Any = ()
    for _ in range(31):
        deep = (deep,)
    assert encode(deep)[0] == TagCode.TUPLE
    with pytest.raises(KeyValueError, match="nested deeper than 32"):
        encode((deep,))


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (None, KeyTypeError, "None is not a key; accepted: int, str, bytes-like"),
    (math.nan, KeyValueError, "NaN is not a key"),
    (np.float32("nan"), KeyValueError, "NaN is not a key"),
    (np.longdouble("nan"), KeyValueError, "NaN is not a key"),
    (Decimal("NaN"), KeyValueError, r"Decimal\('NaN'\) is not a key"),
    (Decimal("-sNaN12"), KeyValueError, r"Decimal\('-sNaN12'\) is not a key"),
    (pd.NaT, KeyValueError, "NaT is not a key"),
    (pd.NA, KeyTypeError, "<NA> of type pandas.* is not a key"),
    (pd.Timestamp("2024-01-01 00:00:00.000000001"), KeyValueError, "it has nanoseconds"),
    (pd.Timestamp(np.datetime64("20000-01-01", "s")), KeyValueError, "accepted: years 1..9999"),
    (time(1), KeyTypeError, "of type datetime.time is not a key; accepted"),
    (timedelta(1), KeyTypeError, "of type datetime.timedelta is not a key"),
    (Fraction(1, 2), KeyTypeError, r"Fraction\(1, 2\) of type fractions.Fraction is not a key"),
    (1j, KeyTypeError, "1j of type complex is not a key"),
    (np.complex128(1), KeyTypeError, "of type numpy.complex128"),
    (np.datetime64("2024-01-01"), KeyTypeError, "of type numpy.datetime64"),
    (np.timedelta64(1, "s"), KeyTypeError, "of type numpy.timedelta64"),
    (np.array(5), KeyTypeError, "of type numpy.ndarray"),
    ([1], KeyTypeError, r"\[1\] of type list is not a key; accepted: .*tuples of these"),
    ({1}, KeyTypeError, "of type set"),
    (frozenset(), KeyTypeError, "of type frozenset"),
    (Colour.RED, KeyTypeError, "Colour is not a key"),
    (object, KeyTypeError, "of type type is not a key"),
    ([10**5000], KeyTypeError, "a value of type list"),
    (["x" * 99], KeyTypeError, r"\.\.\. of type list"),
    ((1, (2, None)), KeyTypeError, "component 1: component 1: None is not a key"),
    ((math.nan,), KeyValueError, "component 0: NaN is not a key"),
]


@pytest.mark.parametrize(("key", "error", "message"), REFUSED)
def test_what_cannot_be_a_key_is_refused(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encode(key)
    with pytest.raises(error, match=message):
        fingerprint(key)


def test_uuid_and_date_have_their_own_tags() -> None:
    assert encode(UUID(int=1)) == (TagCode.UUID, bytes(15) + b"\x01")
    assert encode(date(1, 1, 2)) == (TagCode.DATE, b"\x02" + bytes(7))
    assert encode(UUID(int=1)) != encode(UUID(int=1).bytes)


def test_tags_are_pinned() -> None:
    assert {tag.name: int(tag) for tag in TagCode} == {
        "STR": 1, "BYTES": 2, "INT": 3, "BIGINT": 4, "FLOAT": 5, "DECIMAL": 6, "UUID": 7,
        "DATE": 8, "DATETIME": 9, "AWARE_DATETIME": 10, "TUPLE": 11,
    }  # fmt: skip
