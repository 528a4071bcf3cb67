"""Canonical keys: coarser than or equal to the database's `=`, or no key at all.

In: one value as the driver is sent it (after SQLAlchemy's bind processing) or as the driver reads
it back raw. Out: a key of the store; or Unclear, which says why no key is known.

Invariants
  1. A value has a key only if it is of exactly one of the types that every known driver sends as it
     is (a subclass may be written in any way), and if the column surely stores it as it was sent.
  2. Whenever the database finds a stored value s equal to a sent value v, the keys of s and v are
     equal, and so are those of the value that was sent to store s. A coarser form only costs
     false positives.
  3. Where no such form is known the answer is Unclear, never a guess.
  4. The meaning of an `id` never changes: another meaning gets another number behind the slash.
     The ids are in the catalog, beside the keys that were made with them.

The kind of database decides which form a column has, from its live type and collation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from bloomstore.kernels import are_all, are_integers
from bloomstore.keys import Key

Form: TypeAlias = Callable[[object], Key]


class Unclear(Exception):
    """No key is known to be equal whenever the database says equal; the text says why."""


@dataclass(frozen=True, slots=True)
class Canon:
    """The canonical form of one column: equal to another that has the same id.

    `own` is a type whose values, not those of its subclasses, are their own keys, so that fast
    paths need no call; `stored` is the same for values that are read back. `room` has the values
    that the column can hold: a lookup of any other is sent, so that the database judges it.
    `replaced` are keys whose values the database replaces. `of_stored` is the form of
    values that are read back, where more of them are stored than can be asked for.
    """

    id: str
    of: Form = field(compare=False)
    own: type | None = None
    replaced: tuple[Key, ...] = ()
    stored: type | None = None
    room: Container[Any] = field(default=(), compare=False)
    of_stored: Form | None = field(default=None, compare=False)

    def key_of_stored(self, value: object) -> Key:
        """The key of a value as it is stored. Raises Unclear."""
        return (self.of_stored or self.of)(value)


def stored_keys(canon: Canon, values: list[Any]) -> list[Key]:
    """The keys of values that were read back; tuples if the form is composite. Raises Unclear."""
    own = canon.stored or canon.own
    if own is not None and are_all(values, own):
        return values
    keys = []
    for value in values:
        try:
            keys.append(canon.key_of_stored(value))
        except Unclear as why:
            raise Unclear(f"the stored value {value!r} has no key: {why}") from None
    return keys


def _refuse(value: object, column: str) -> Unclear:
    return Unclear(f"cannot tell how the database compares a {type(value).__name__} with {column}")


# The values that a column can hold ------------------------------------------------------------


class Texts:
    """Every text that can be sent: no lone surrogates, and no NUL where a database has none."""

    def __init__(self, *, has_nul: bool = True, is_ascii: bool = False) -> None:
        self._has_nul = has_nul
        self._is_ascii = is_ascii  # other text may be stored differently

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and (value.isascii() or (not self._is_ascii and _is_encodable(value)))
            and (self._has_nul or "\0" not in value)
        )


def hold_all(room: Container[Any], values: list[Any], own: type) -> bool:
    """Whether all these values are exactly of a type, and in its room."""
    if isinstance(room, range):
        return are_integers(values, room.start, room.stop - 1)
    if not are_all(values, own):
        return False
    if isinstance(room, Texts):
        return "".join(values) in room
    return all(value in room for value in values)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Numbers ---------------------------------------------------------------------------

_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*", re.ASCII)
_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*",
    re.ASCII,
)
_EXACT = Context(prec=2000, Emax=999_999, Emin=-999_999)
EXACT_DIGITS = 15  # decimal digits that every conversion to a double keeps
MAX_POWER = 60  # MariaDB clips literals beyond 65 digits
EXACT_POWER = 22  # 10**22 is the last power of ten that is a double
NO_ROOM = "a number that the column cannot hold"


def integers(bits: int, *, is_signed: bool = True) -> range:
    """The range of integers with this many bits."""
    return range(-(1 << bits - 1), 1 << bits - 1) if is_signed else range(1 << bits)


def integer(room: range) -> Form:
    """An integer column of a server. Strings are refused: each driver has its own way with them."""

    def of(value: object) -> Key:
        if type(value) is not int and type(value) is not bool:
            raise _refuse(value, "an integer column")
        if value not in room:
            raise Unclear(NO_ROOM)
        return int(value)

    return of


def boolean(value: object) -> Key:
    """A boolean column."""
    if type(value) is bool or (type(value) is int and value in (0, 1)):
        return int(value)
    raise _refuse(value, "a boolean column")


def double(value: object) -> Key:
    """A column of doubles: the nearest double of either side."""
    if type(value) is Decimal and value.is_finite() and abs(value.adjusted()) > MAX_POWER:
        raise Unclear("more digits than every server reads")
    if type(value) in (int, bool, float, Decimal):
        try:
            nearest = float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise Unclear("a number beyond the range of doubles") from None
        return "NaN" if math.isnan(nearest) else nearest
    raise _refuse(value, "a column of doubles")


def single(value: object) -> Key:
    """A column of 32-bit floats: the nearest one of either side."""
    if type(value) in (int, bool) and abs(value) <= 1 << 24:  # type: ignore[arg-type]
        return int(value)  # type: ignore[call-overload,no-any-return]
    if type(value) is float:
        with np.errstate(over="ignore"):
            nearest = float(np.float32(value))
        return "NaN" if math.isnan(nearest) else nearest
    raise _refuse(value, "a column of 32-bit floats")


def decimal(scale: int | None, precision: int | None = None) -> Form:
    """A NUMERIC column with this scale: rounded as the server stores it, then the nearest double.

    Servers compare numeric with float as doubles, so an exact number would be too fine.
    """
    limit = None if precision is None else Decimal(1).scaleb(precision - (scale or 0))

    def of(value: object) -> Key:
        if type(value) is float:
            if math.isnan(value) or math.isinf(value):
                return "NaN" if math.isnan(value) else value
            exact = Decimal(repr(value))
            places = -int(exact.as_tuple().exponent)
            if len(exact.as_tuple().digits) > EXACT_DIGITS or places > (scale or EXACT_DIGITS):
                raise Unclear("a float that the database rounds in its own way")
        elif type(value) in (int, bool, Decimal):
            exact = Decimal(value)  # type: ignore[arg-type]
        else:
            raise _refuse(value, "a numeric column")
        if exact.is_nan():
            return "NaN"
        if exact.is_finite() and scale is not None:
            try:
                exact = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
            except InvalidOperation:
                raise Unclear("a number of more than 2000 digits") from None
            if limit is not None and abs(exact) >= limit:
                raise Unclear(NO_ROOM)
        return float(exact)

    return of


# Text and bytes --------------------------------------------------------------------

_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


TOO_LONG = "a text that is longer than the column"
NOT_KEPT = "a text that cannot be sent, or that the column may store differently"


def text(room: Container[str], length: int | None = None) -> Form:
    """Equality of code points, in a column of at most `length` characters if it is given."""

    def of(value: object) -> Key:
        if type(value) is not str:
            raise _refuse(value, "a text column")
        if value not in room:
            raise Unclear(NOT_KEPT)
        if length is not None and len(value) > length:
            raise Unclear(TOO_LONG)
        return value

    return of


def text_cut(room: Container[str], length: int) -> Form:
    """PostgreSQL's VARCHAR(length): blanks beyond it are cut off silently, and nothing else."""
    fitting = text(room, length)

    def of(value: object) -> Key:
        if type(value) is str and len(value) > length and not value[length:].strip(" "):
            value = value[:length]
        return fitting(value)

    return of


def text_without_trailing_blanks(room: Container[str], length: int | None = None) -> Form:
    """CHAR columns and PAD SPACE collations, of at most `length` characters."""

    def of(value: object) -> Key:
        if type(value) is not str:
            raise _refuse(value, "a text column")
        if value not in room:
            raise Unclear(NOT_KEPT)
        value = value.rstrip(" ")
        if length is not None and len(value) > length:
            raise Unclear(TOO_LONG)
        return value

    return of


def text_of_bytes(form: Form, octets: int) -> Form:
    """The same in a column that has room for this many bytes of UTF-8."""

    def of(value: object) -> Key:
        key = form(value)
        assert isinstance(key, str)
        if len(key.encode()) > octets:
            raise Unclear(TOO_LONG)
        return key

    return of


def fold_ascii(value: str) -> str:
    """SQLite's NOCASE: ASCII letters only, and it compares no further than a NUL."""
    return value.split("\0", 1)[0].translate(_ASCII_LOWER)


def fold_blanks(value: str) -> str:
    """SQLite's RTRIM: trailing blanks do not count, other white space does."""
    return value.rstrip(" ")


def binary(value: object) -> Key:
    """Bytes of every kind; psycopg wraps them."""
    if type(value).__module__ == "psycopg.dbapi20":
        value = getattr(value, "obj", value)
    if type(value) in (bytes, bytearray) or (type(value) is memoryview and value.format == "B"):
        return bytes(value)  # type: ignore[call-overload,no-any-return]
    raise _refuse(value, "a column of bytes")


def binary_without_trailing_zeros(value: object) -> Key:
    """MySQL's BINARY(n) is padded with zeros."""
    raw = binary(value)
    assert isinstance(raw, bytes)
    return raw.rstrip(b"\0")


def uuid(value: object) -> Key:
    """A UUID however it is written; asyncpg reads objects of its own."""
    if type(value) is UUID or type(value).__module__ == "asyncpg.pgproto.pgproto":
        return UUID(bytes=value.bytes)  # type: ignore[attr-defined]
    if type(value) is str:
        try:
            return UUID(value)
        except ValueError:
            raise Unclear(f"{value!r} is no UUID") from None
    raise _refuse(value, "a UUID column")


# Time ------------------------------------------------------------------------------


def day(value: object) -> Key:
    """A DATE column."""
    if type(value) is date:
        return value
    raise _refuse(value, "a date column")


def wall_time(places: int) -> Form:
    """A column of wall time that keeps this many decimal places of a second."""
    unit = 10 ** (6 - places)

    def of(value: object) -> Key:
        if type(value) is not datetime:
            raise _refuse(value, "a column of wall time")
        if value.tzinfo is not None:
            raise Unclear("an aware datetime for a column of wall time")
        if value.microsecond % unit:
            raise Unclear("a datetime that the column rounds")
        return value.replace(fold=0)

    return of


def instant(value: object) -> Key:
    """A column of instants: UTC."""
    if type(value) is not datetime:
        raise _refuse(value, "a column of instants")
    if value.utcoffset() is None:
        raise Unclear("a naive datetime: the session's time zone decides what it means")
    return value.astimezone(UTC)


# SQLite ----------------------------------------------------------------------------


def sqlite(affinity: str, fold: Callable[[str], str] | None) -> Form:
    """A column of this affinity whose text is compared by a built-in collation.

    SQLite stores any type in any column after it has tried to convert it; whatever stays text is
    compared by the collation, bytes are never equal to text.
    """
    is_numeric = affinity in ("INTEGER", "REAL", "NUMERIC")
    numbers, texts = integers(64), Texts()

    def of(value: object) -> Key:
        kind = type(value)
        if kind in (bytes, bytearray, memoryview):
            return binary(value)
        if kind is float:
            return of_float(value)  # type: ignore[arg-type]
        if kind is int or kind is bool:
            number = int(value)  # type: ignore[call-overload]
            if number not in numbers:
                raise Unclear(NO_ROOM)
            if affinity == "TEXT":
                return fold(str(number)) if fold else str(number)
            return float(number) if affinity == "REAL" else number
        if kind is not str:
            raise _refuse(value, "an SQLite column")
        if value not in texts:
            raise Unclear(NOT_KEPT)
        assert isinstance(value, str)
        if is_numeric and (found := _number(value)) is not None:
            return float(found) if affinity == "REAL" else found
        return fold(value) if fold else value

    def of_float(value: float) -> Key:
        if math.isnan(value):
            raise Unclear("SQLite stores NaN as NULL")
        if affinity == "TEXT":
            raise Unclear("a float for a text column: SQLite writes it in its own way")
        return value

    return of


def _number(written: str) -> int | float | None:
    """The number that SQLite makes of text in a numeric column; None if it stays text."""
    if (match := _INTEGER.fullmatch(written)) and abs(number := int(match[1])) < 1 << 63:
        return number
    match = _NUMBER.fullmatch(written)
    if match is None:
        return None
    _, digits, exponent = Decimal(match[1]).as_tuple()
    if len(digits) > EXACT_DIGITS or abs(int(exponent)) > EXACT_POWER:
        raise Unclear("more digits than SQLite is sure to read exactly")
    return float(match[1])


# Composite keys --------------------------------------------------------------------


def composite(parts: tuple[Canon, ...]) -> Canon:
    """The form of a key of several columns: each in its own form."""

    def of(values: object) -> Key:
        assert isinstance(values, tuple)
        return tuple(part.of(value) for part, value in zip(parts, values, strict=True))

    def of_stored(values: object) -> Key:
        assert isinstance(values, tuple)
        return tuple(part.key_of_stored(value) for part, value in zip(parts, values, strict=True))

    return Canon("(" + ", ".join(part.id for part in parts) + ")", of, of_stored=of_stored)
