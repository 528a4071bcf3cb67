"""Canonical keys: coarser than or equal to the database's `=`, or no key at all.

In: one value as the driver is sent it (after SQLAlchemy's bind processing) or as the driver reads
it back raw. Out: a key of the store; or Unclear, which says why no key is known.

Invariants
  1. Whenever the database finds a stored value s equal to a sent value v, the keys of s and v are
     equal, and so are those of the value that was sent to store s. A coarser form only costs
     false positives.
  2. Where no such form is known the answer is Unclear, never a guess.
  3. The meaning of an `id` never changes: another meaning gets another number behind the slash.
     The ids are in the catalog, beside the keys that were made with them.

Which form a column has is decided by its database (databases/), from the live type and collation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from bloomstore.kernels import are_all
from bloomstore.keys import Key

Form: TypeAlias = Callable[[object], Key]


class Unclear(Exception):
    """No key is known to be equal whenever the database says equal; the text says why."""


@dataclass(frozen=True, slots=True)
class Canon:
    """The canonical form of one column: equal to another that has the same id.

    `own` is a type whose values are their own key, so that fast paths need no call; subclasses of
    it do not count; `stored` the same of values that are read back. `replaced` are keys that the
    database stores as something else.
    """

    id: str
    of: Form = field(compare=False)
    own: type | None = None
    replaced: tuple[Key, ...] = ()
    stored: type | None = None


def stored_keys(canon: Canon, values: list[Any]) -> list[Key]:
    """The keys of values that were read back; tuples if the form is composite. Raises Unclear."""
    own = canon.stored or canon.own
    if own is not None and are_all(values, own):
        return values
    keys = []
    for value in values:
        try:
            keys.append(canon.of(value))
        except Unclear as why:
            raise Unclear(f"the stored value {value!r} has no key: {why}") from None
    return keys


def _refuse(value: object, column: str) -> Unclear:
    return Unclear(f"a {type(value).__name__} for {column}")


# Numbers ---------------------------------------------------------------------------

_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*", re.ASCII)
_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*",
    re.ASCII,
)
_EXACT = Context(prec=2000, Emax=999_999, Emin=-999_999)
EXACT_DIGITS = 15  # decimal digits that every double keeps, whoever converts it
MAX_POWER = 60  # MariaDB clips literals beyond 65 digits
EXACT_POWER = 22  # 10**22 is the last power of ten that is a double


def integer(value: object) -> Key:
    """An integer column of a server: integers, and strings of digits where the server casts."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and (match := _INTEGER.fullmatch(value)):
        return int(match[1])
    raise _refuse(value, "an integer column")


def integer_only(value: object) -> Key:
    """An integer column of a server that compares strings with numbers in its own way."""
    if isinstance(value, int):
        return int(value)
    raise _refuse(value, "an integer column")


def boolean(value: object) -> Key:
    """A boolean column."""
    if isinstance(value, int) and value in (0, 1):
        return int(value)
    raise _refuse(value, "a boolean column")


def double(value: object) -> Key:
    """A column of doubles: the nearest double of either side."""
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > MAX_POWER:
        raise Unclear("more digits than every server reads")
    if isinstance(value, (int, float, Decimal)):
        try:
            nearest = float(value)
        except OverflowError:
            raise Unclear("a number beyond the range of doubles") from None
        return "NaN" if math.isnan(nearest) else nearest
    raise _refuse(value, "a column of doubles")


def single(value: object) -> Key:
    """A column of 32-bit floats: the nearest one of either side."""
    if isinstance(value, int) and abs(value) <= 1 << 24:
        return int(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            nearest = float(np.float32(value))
        return "NaN" if math.isnan(nearest) else nearest
    raise _refuse(value, "a column of 32-bit floats")


def decimal(scale: int | None) -> Form:
    """A NUMERIC column with this scale: rounded as the server stores it, then the nearest double.

    Servers compare numeric with float as doubles, so an exact number would be too fine.
    """

    def of(value: object) -> Key:
        if isinstance(value, float):
            if math.isnan(value) or math.isinf(value):
                return "NaN" if math.isnan(value) else value
            exact = Decimal(repr(value))
            places = -int(exact.as_tuple().exponent)
            if len(exact.as_tuple().digits) > EXACT_DIGITS or places > (scale or EXACT_DIGITS):
                raise Unclear("a float that the database rounds in its own way")
        elif isinstance(value, (int, Decimal)):
            exact = Decimal(value)
        else:
            raise _refuse(value, "a numeric column")
        if exact.is_nan():
            return "NaN"
        if exact.is_finite() and scale is not None:
            try:
                exact = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
            except InvalidOperation:
                raise Unclear("a number of more than 2000 digits") from None
        return float(exact)

    return of


# Text and bytes --------------------------------------------------------------------

_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def text(value: object) -> Key:
    """Equality of code points."""
    if isinstance(value, str):
        return str.__str__(value)  # of an Enum that is a str, too: not its name
    raise _refuse(value, "a text column")


def text_cut(length: int) -> Form:
    """VARCHAR(length): blanks beyond the length are cut off silently when they are stored."""

    def of(value: object) -> Key:
        if not isinstance(value, str):
            raise _refuse(value, "a text column")
        if len(value) > length and not value[length:].strip(" "):
            return value[:length]
        return str.__str__(value)

    return of


def text_without_trailing_blanks(value: object) -> Key:
    """CHAR columns and PAD SPACE collations."""
    if isinstance(value, str):
        return value.rstrip(" ")
    raise _refuse(value, "a text column")


def fold_ascii(value: str) -> str:
    """SQLite's NOCASE: ASCII letters only, and it compares no further than a NUL."""
    return value.split("\0", 1)[0].translate(_ASCII_LOWER)


def binary(value: object) -> Key:
    """Bytes of every kind; psycopg wraps them."""
    if not isinstance(value, memoryview):
        value = getattr(value, "obj", value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _refuse(value, "a column of bytes")


def binary_without_trailing_zeros(value: object) -> Key:
    """MySQL's BINARY(n) is padded with zeros."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).rstrip(b"\0")
    raise _refuse(value, "a column of bytes")


def uuid(value: object) -> Key:
    """A UUID however it is written."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            raise Unclear(f"{value!r} is no UUID") from None
    raise _refuse(value, "a UUID column")


# Time ------------------------------------------------------------------------------


def day(value: object) -> Key:
    """A DATE column."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _refuse(value, "a date column")


def wall_time(places: int) -> Form:
    """A column of wall time that keeps this many decimal places of a second."""
    unit = 10 ** (6 - places)

    def of(value: object) -> Key:
        if not isinstance(value, datetime):
            raise _refuse(value, "a column of wall time")
        if value.tzinfo is not None:
            raise Unclear("an aware datetime for a column of wall time")
        if value.microsecond % unit:
            raise Unclear("a datetime that the column rounds")
        return value.replace(fold=0)

    return of


def instant(value: object) -> Key:
    """A column of instants: UTC."""
    if not isinstance(value, datetime):
        raise _refuse(value, "a column of instants")
    if value.tzinfo is None:
        raise Unclear("a naive datetime: the session's time zone decides what it means")
    return value.astimezone(UTC)


# SQLite ----------------------------------------------------------------------------


def sqlite(affinity: str, fold: Callable[[str], str] | None) -> Form:
    """A column of this affinity whose text is compared by a built-in collation.

    SQLite stores any type in any column after it has tried to convert it; whatever stays text is
    compared by the collation, bytes are never equal to text.
    """
    is_numeric = affinity in ("INTEGER", "REAL", "NUMERIC")

    def of(value: object) -> Key:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, (int, float)):
            if isinstance(value, float) and math.isnan(value):
                raise Unclear("SQLite stores NaN as NULL")
            if affinity == "TEXT":
                if isinstance(value, float):
                    raise Unclear("a float for a text column: SQLite writes it in its own way")
                return fold(str(int(value))) if fold else str(int(value))
            return float(value) if affinity == "REAL" else value
        if not isinstance(value, str):
            raise _refuse(value, "an SQLite column")
        if is_numeric and (number := _number(value)) is not None:
            return float(number) if affinity == "REAL" else number
        return fold(value) if fold else str.__str__(value)

    return of


def _number(written: str) -> int | float | None:
    """What SQLite makes of text in a numeric column; None if it stays text."""
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

    return Canon("(" + ", ".join(part.id for part in parts) + ")", of)
