"""Whether a driver converts values: keys are known only if it does not.

Programs may teach a driver to write or to read values in ways of their own: adapters of sqlite3,
dumpers and loaders of psycopg, codecs of asyncpg, encoders and decoders of PyMySQL; or have it make
connections, cursors and rows of their own classes. A connection of a driver that was taught about
a type that keys are made of is in doubt, and so is one of a driver that is not in the list below.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy.engine import Dialect

_TYPES = (int, bool, float, Decimal, str, bytes, bytearray, memoryview, UUID, date, datetime)
# The types of PostgreSQL that have a canonical form, by their numbers.
_BUILT_IN = (16, 17, 20, 21, 23, 25, 700, 701, 1042, 1043, 1082, 1114, 1184, 1700, 2950)


def doubt_of(raw: Any, dialect: Dialect) -> str:
    """Why values are not sent or read as they are; "" if they are."""
    look = _LOOKS.get(dialect.driver)
    if look is None:
        drivers = ", ".join(sorted(_LOOKS))
        return f"how the driver {dialect.driver} converts values is not known: use {drivers}"
    return look(getattr(raw, "driver_connection", raw))


def _is_foreign(package: str, *made_by: Any) -> bool:
    """Whether some of these classes and functions are not of the driver's package."""
    return any(str(each.__module__).partition(".")[0] != package for each in made_by)


def _sqlite3(raw: Any) -> str:
    if type(getattr(raw, "_conn", raw)) is not sqlite3.Connection:  # aiosqlite has one inside
        return f"sqlite3 has a class of its own for connections: {type(raw).__name__}"
    if raw.row_factory not in (None, sqlite3.Row):
        return "the connection has a row factory"
    for kind in (int, float, str, bytes, bytearray, memoryview):
        if (kind, sqlite3.PrepareProtocol) in sqlite3.adapters:
            return f"sqlite3 has an adapter for {kind.__name__}"
    if [sqlite3.adapt(value, sqlite3.PrepareProtocol, value) for value in (False, True)] != [0, 1]:
        return "sqlite3 has an adapter for bool"
    return ""


def _psycopg(raw: Any) -> str:
    made_by = type(raw), raw.cursor_factory, raw.server_cursor_factory, raw.row_factory
    if _is_foreign("psycopg", *made_by):
        return "psycopg has a class of its own for connections, cursors or rows"
    formats: Any = importlib.import_module("psycopg.adapt").PyFormat
    for kind in _TYPES:
        if raw.adapters.get_dumper(kind, formats.AUTO) is not _as_shipped().get_dumper(
            kind, formats.AUTO
        ):
            return f"psycopg has a dumper of its own for {kind.__name__}"
    for number in _BUILT_IN:
        for form in (0, 1):  # text, binary
            if raw.adapters.get_loader(number, form) is not _as_shipped().get_loader(number, form):
                return f"psycopg has a loader of its own for the type {number}"
    return ""


@cache
def _as_shipped() -> Any:
    """The adapters of psycopg as it ships them."""
    adapt: Any = importlib.import_module("psycopg.adapt")
    postgres: Any = importlib.import_module("psycopg.postgres")
    adapters = adapt.AdaptersMap(None, postgres.types)
    postgres.register_default_adapters(adapters)
    return adapters


def _asyncpg(raw: Any) -> str:
    if _is_foreign("asyncpg", type(raw), raw._protocol.get_record_class()):
        return "asyncpg has a class of its own for connections or rows"
    settings = raw._protocol.get_settings()
    for number in _BUILT_IN:
        codec = settings.get_data_codec(number)
        if codec is not settings.get_data_codec(number, ignore_custom_codec=True):
            return f"asyncpg has a codec of its own for the type {number}"
    return ""


def _pymysql(raw: Any) -> str:
    if _is_foreign("pymysql", type(raw), raw.cursorclass):
        return "PyMySQL has a class of its own for connections or cursors"
    converters: Any = importlib.import_module("pymysql.converters")
    for kind in (int, bool, float, Decimal, str, bytes, date, datetime):
        if getattr(raw.encoders.get(kind), "__module__", "") != converters.__name__:
            return f"PyMySQL has an encoder of its own for {kind.__name__}"
    for number, expected in _decoders().items():
        if raw.decoders.get(number, expected) is not expected:
            return f"PyMySQL has a decoder of its own for the type {number}"
    return ""


@cache
def _decoders() -> dict[int, Any]:
    """The decoder of each type by its number; text and bytes are passed through."""
    converters: Any = importlib.import_module("pymysql.converters")
    types: Any = importlib.import_module("pymysql.constants.FIELD_TYPE")
    decoders: dict[int, Any] = {
        types.DECIMAL: Decimal,
        types.NEWDECIMAL: Decimal,
        types.DOUBLE: float,
        types.DATE: converters.convert_date,
        types.DATETIME: converters.convert_datetime,
    }
    decoders |= dict.fromkeys(
        (types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG), int
    )
    names = "STRING VAR_STRING VARCHAR BLOB TINY_BLOB MEDIUM_BLOB LONG_BLOB".split()
    texts = [getattr(types, name) for name in names]
    return decoders | dict.fromkeys(texts, converters.through)


_LOOKS: dict[str, Callable[[Any], str]] = {
    "pysqlite": _sqlite3,
    "aiosqlite": _sqlite3,
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "pymysql": _pymysql,
}


@contextmanager
def plain_text(raw: Any, dialect: Dialect) -> Iterator[None]:
    """Inside, SQLite's text is read as str, and rows as they are, whatever a program has set."""
    if dialect.driver not in ("pysqlite", "aiosqlite"):
        yield
        return
    connection = getattr(raw, "driver_connection", raw)
    before = connection.text_factory, connection.row_factory
    connection.text_factory, connection.row_factory = str, None
    try:
        yield
    finally:
        connection.text_factory, connection.row_factory = before


def reads_text(raw: Any, dialect: Dialect) -> bool:
    """Whether text is read as str."""
    if dialect.driver not in ("pysqlite", "aiosqlite"):
        return True
    return getattr(raw, "driver_connection", raw).text_factory is str
