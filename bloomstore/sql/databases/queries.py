"""Small parts of every query to a database: rows, literals, names as words, and a pause."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from bloomstore.sql.databases.contract import Cursor


def pause(seconds: float) -> None:
    """Waits a moment; under an async engine the event loop keeps running."""
    if in_greenlet():
        await_only(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def rows(cursor: Cursor, sql: str) -> list[tuple[Any, ...]]:
    """All rows of one query."""
    cursor.execute(sql)
    return [tuple(row) for row in cursor.fetchall()]


def quoted(name: str) -> str:
    """A string literal of SQL. Names with a backslash are refused: servers differ there."""
    if "\\" in name or "\0" in name:
        raise ValueError(f"a name with a backslash or a NUL cannot be guarded: {name!r}")
    return "'" + name.replace("'", "''") + "'"


def mentions(text: str, table: str) -> bool:
    """Whether a text has the table's name as a word."""
    return re.search(rf"(?<!\w){re.escape(table)}(?!\w)", text, re.IGNORECASE) is not None
