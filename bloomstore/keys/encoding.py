"""Key -> (tag, encoded bytes), so that keys that are equal in Python are equal on disk.

In: one key. Out: a TagCode and bytes; or KeyTypeError / KeyValueError, which name the value and the
accepted types.

    tag  name            encoded bytes (all numbers little endian)
     1   STR             UTF-8; lone surrogates as three bytes each (Python's "surrogatepass")
     2   BYTES           the bytes
     3   INT             -2^63 .. 2^63-1: 8 bytes, two's complement
     4   BIGINT          other integers: two's complement of the fewest bytes
     5   FLOAT           a double that is not an integer, or an infinity: 8 bytes, IEEE 754
     6   DECIMAL         a Decimal that equals no integer and no double: ASCII text, "-" if
                         negative, digits without zeros at either end, "E", the exponent
     7   UUID            16 bytes, most significant first
     8   DATE            8 bytes: days, 0001-01-01 is 1
     9   DATETIME        8 bytes: microseconds of wall time since 1970-01-01T00:00
    10   AWARE_DATETIME  8 bytes: microseconds since 1970-01-01T00:00Z
    11   TUPLE           for each component: 1 byte tag, 8 bytes length, the encoded bytes

Invariants
  1. a == b implies encode(a) == encode(b) for accepted keys: True, 1, 1.0 and Decimal("1.0") are
     all INT; a subclass (IntEnum, str-mixin Enum, namedtuple, numpy.str_) is its base.
  2. str, bytes and numbers never share an encoding, nor do two different ones of a kind.
  3. No context, locale, hash seed, platform or library version takes part.

Equality is that of the standard library. Two libraries compare by rounding or by other rules, and
no encoding could follow them: numpy (float32(0.1) == 0.1, float64(2**53) == 2**53 + 1) and, for
the hour that a clock repeats, pandas (see _instant). Numpy scalars count with their exact value.

Not here: hashing (hashing/fingerprint.py), many keys at once (batches.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from bloomstore.errors import BloomStoreError, KeyTypeError, KeyValueError

Key: TypeAlias = (
    int
    | str
    | bytes
    | bytearray
    | memoryview
    | float
    | Decimal
    | UUID
    | date
    | datetime
    | np.integer[Any]
    | np.floating[Any]
    | np.bool
    | tuple["Key", ...]
)
"""The types of a key. None and NaN are no keys: nothing is equal to them, not even themselves."""

Encoded: TypeAlias = tuple[int, bytes]

ACCEPTED: Final = (
    "accepted: int, str, bytes-like, bool, float, Decimal, UUID, date, datetime, tuples of these"
)
MAX_TUPLE_DEPTH: Final = 32
# An integral Decimal becomes an int, and Decimal("1E+999999999") would be one of 400 MB.
MAX_DECIMAL_DIGITS: Final = 10_000


class TagCode(IntEnum):
    """Which encoding was used; goes into every fingerprint, so it is part of the format.

    Append only: a code is never changed or used again.
    """

    STR = 1
    BYTES = 2
    INT = 3
    BIGINT = 4
    FLOAT = 5
    DECIMAL = 6
    UUID = 7
    DATE = 8
    DATETIME = 9
    AWARE_DATETIME = 10
    TUPLE = 11


# Plain ints: an IntEnum member costs a slower xor and multiply for every key.
STR: Final = int(TagCode.STR)
BYTES: Final = int(TagCode.BYTES)
INT: Final = int(TagCode.INT)
BIGINT: Final = int(TagCode.BIGINT)
FLOAT: Final = int(TagCode.FLOAT)
_DECIMAL: Final = int(TagCode.DECIMAL)
_UUID: Final = int(TagCode.UUID)
_DATE: Final = int(TagCode.DATE)
_DATETIME: Final = int(TagCode.DATETIME)
_AWARE_DATETIME: Final = int(TagCode.AWARE_DATETIME)
_TUPLE: Final = int(TagCode.TUPLE)

pack_int64: Final = struct.Struct("<q").pack
_pack_double: Final = struct.Struct("<d").pack
_pack_component: Final = struct.Struct("<BQ").pack
_EPOCH: Final = datetime(1970, 1, 1)

# Errors that reading a key can raise: a memoryview that was released, a UUID without its number,
# code of a subclass or of a tzinfo. Not RuntimeError or OSError, which signal handlers raise, too.
_UNREADABLE: Final = (
    ArithmeticError, AttributeError, BufferError, LookupError, NotImplementedError,
    TypeError, ValueError, struct.error,
)  # fmt: skip


def encode(key: Key) -> Encoded:
    """The tag and the canonical bytes of one key.

    Raises KeyTypeError for an object of another type, KeyValueError for a value that is no key.
    """
    try:
        encoder = _EXACT.get(type(key))
        if encoder is not None:
            return encoder(key)
        if isinstance(key, tuple):
            return _TUPLE, _components(key, 1)
        return _of_subclass(key)
    except _UNREADABLE as error:
        if isinstance(error, BloomStoreError):
            raise
        why = f"{type(error).__name__}: {error}"
        raise KeyValueError(f"{_shown(key)} is not a key: it cannot be read: {why}") from error


def _of_subclass(key: Any) -> Encoded:
    """A key whose type is not one of the exact ones, tuples excepted."""
    for base, encoder in _BASES:
        if isinstance(key, base):
            return encoder(key)
    if isinstance(key, np.timedelta64):  # counts as np.integer at run time
        raise refusal(key)
    if isinstance(key, np.integer):
        return _int(int(key))
    if isinstance(key, np.bool):
        return _int(bool(key))
    if isinstance(key, np.floating):
        return _numpy_float(key)
    raise refusal(key)


def refusal(key: object) -> KeyTypeError:
    """The error for an object that is no key."""
    if key is None:
        return KeyTypeError(f"None is not a key; {ACCEPTED}")
    kind = type(key)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    return KeyTypeError(f"{_shown(key)} of type {name} is not a key; {ACCEPTED}")


def _shown(value: object) -> str:
    """A short repr that cannot fail (an int of more than 4300 digits has none)."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a foreign repr can raise anything)
        return "a value"
    return text if len(text) <= 60 else text[:57] + "..."


# One encoder per type ---------------------------------------------------------------
# Each takes its type and subclasses, and reads a subclass by the methods of the base.


def _str(key: str) -> Encoded:
    return STR, str.encode(key, "utf-8", "surrogatepass")


def _bytes(key: bytes | bytearray) -> Encoded:
    return BYTES, bytes(memoryview(key))


def _memoryview(key: memoryview) -> Encoded:
    # Views compare item by item: [1, 0] of 2-byte items equals [1, 0] of 1-byte items, so only
    # for single bytes does equality of views imply equality of memory.
    if key.format not in ("B", "b", "c"):
        raise KeyTypeError(
            f"memoryview of format {key.format!r} is not a key; accepted: formats 'B', 'b', 'c'"
        )
    return BYTES, key.tobytes()


def _int(key: int) -> Encoded:
    value = int.__int__(key)
    try:
        return INT, pack_int64(value)
    except struct.error:
        length = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return BIGINT, value.to_bytes(length, "little", signed=True)


def _float(key: float) -> Encoded:
    value = float.__float__(key)
    if value != value:
        raise KeyValueError("NaN is not a key: it is not equal to itself")
    if value.is_integer():
        return _int(int(value))
    return FLOAT, _pack_double(value)


def _numpy_float(key: np.floating[Any]) -> Encoded:
    value = float(key)
    # float16 and float32 are doubles; a longdouble (80 or 128 bits) may lie between two.
    if value != key and value == value:
        raise KeyValueError(f"{_shown(key)} is not a key: no double has exactly this value")
    return _float(value)


def _decimal(key: Decimal) -> Encoded:
    if Decimal.is_nan(key):
        raise KeyValueError(f"{_shown(key)} is not a key: NaN is not equal to itself")
    if Decimal.is_infinite(key):
        return _float(float(key))
    negative, figures, exponent = Decimal.as_tuple(key)
    assert isinstance(exponent, int)  # a letter only for NaN and the infinities
    digits = "".join(map(str, figures))
    significant = digits.rstrip("0")
    if not significant:
        return _int(0)
    exponent += len(digits) - len(significant)
    if exponent >= 0:
        if len(significant) + exponent > MAX_DECIMAL_DIGITS:
            raise KeyValueError(
                f"{_shown(key)} is not a key: an integral Decimal of"
                f" {len(significant) + exponent} digits;"
                f" accepted: up to {MAX_DECIMAL_DIGITS} digits, or an int of any size"
            )
        return _int(int(key))
    # float() rounds to the nearest double; from_float and == are exact whatever the context says.
    # (Decimal(nearest) would raise in a context that traps FloatOperation.)
    nearest = float(key)
    if Decimal.from_float(nearest) == key:  # noqa: FURB164
        return FLOAT, _pack_double(nearest)
    sign = "-" if negative else ""
    return _DECIMAL, f"{sign}{significant}E{exponent}".encode("ascii")


def _uuid(key: UUID) -> Encoded:
    return _UUID, key.int.to_bytes(16, "big")


def _date(key: date) -> Encoded:
    return _DATE, pack_int64(date.toordinal(key))


def _datetime(key: datetime) -> Encoded:
    plain = key if type(key) is datetime and key.fold == 0 else _instant(key)
    wall = plain.replace(tzinfo=None) - _EPOCH
    offset = plain.utcoffset()
    tag = _DATETIME
    if offset is not None:  # a tzinfo that gives None leaves the datetime naive, as in Python
        wall -= offset
        tag = _AWARE_DATETIME
    return tag, pack_int64((wall.days * 86400 + wall.seconds) * 1_000_000 + wall.microseconds)


def _instant(key: datetime) -> datetime:
    """The datetime of the standard library, with fold 0, that the key is equal to.

    Datetimes of one tzinfo are compared by wall time alone: 02:30 before and after the clock is
    set back are equal, though an hour apart. So fold must not count. (Where it would matter,
    Python calls the datetime unequal to every one of another tzinfo, so nothing else is lost.)

    A pandas.Timestamp of that second 02:30 is equal to its UTC instant and to a datetime that is
    equal to the first 02:30. Both cannot hold for keys, so it is refused.
    """
    if key != key:
        raise KeyValueError(f"{_shown(key)} is not a key: it is not equal to itself")
    nanosecond = getattr(key, "nanosecond", 0)
    if nanosecond != 0:
        raise KeyValueError(
            f"{_shown(key)} is not a key: it has nanoseconds; accepted: whole microseconds"
        )
    try:
        plain = datetime(
            key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond,
            tzinfo=key.tzinfo,
        )  # fmt: skip
    except (ValueError, OverflowError):
        raise KeyValueError(f"{_shown(key)} is not a key; accepted: years 1..9999") from None
    if key.fold and hasattr(key, "nanosecond") and plain.utcoffset() != key.utcoffset():
        raise KeyValueError(
            f"{_shown(key)} is not a key: second pass of a repeated hour; accepted: the same in UTC"
        )
    return plain


def _tuple(key: tuple[Any, ...]) -> Encoded:
    return _TUPLE, _components(key, 1)


def _components(key: tuple[Any, ...], depth: int) -> bytes:
    if depth > MAX_TUPLE_DEPTH:
        raise KeyValueError(f"tuple is not a key: nested deeper than {MAX_TUPLE_DEPTH}")
    parts = []
    for number, component in enumerate(key):
        try:
            if isinstance(component, tuple):
                tag, encoded = _TUPLE, _components(component, depth + 1)
            else:
                tag, encoded = encode(component)
        except (KeyTypeError, KeyValueError) as error:
            raise type(error)(f"component {number}: {error}") from None
        parts.append(_pack_component(tag, len(encoded)))
        parts.append(encoded)
    return b"".join(parts)


# datetime before date, which is its base; bool is an int.
_BASES: Final[tuple[tuple[type, Callable[[Any], Encoded]], ...]] = (
    (str, _str),
    (int, _int),
    (bytes, _bytes),
    (float, _float),
    (Decimal, _decimal),
    (UUID, _uuid),
    (datetime, _datetime),
    (date, _date),
    (bytearray, _bytes),
    (memoryview, _memoryview),
)
_EXACT: Final[dict[type, Callable[[Any], Encoded]]] = {
    **dict(_BASES),
    bool: _int,
    tuple: _tuple,
}
