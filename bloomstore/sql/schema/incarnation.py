"""The identity of a database: a row in it, and facts reported by its server.

The row alone is not enough (a standby has it too), nor is the server alone (an SQLite file is no
server). Both are compared with the record of a guard.

Each build leaves a token of its own in the same table. A database with another token than the
record was restored from a time before the build, or built since with another store: it may have
rows whose keys the filter never had. A database that was restored from a later time has only rows
that were captured.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, delete, insert, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from bloomstore.sql.databases import Database, database_of
from bloomstore.sql.databases.contract import Cursor
from bloomstore.sql.databases.queries import rows

TABLE = Table(
    "bloomstore_incarnation",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", String(36), nullable=False),
)
_READ = f"SELECT id, value FROM {TABLE.name}"  # noqa: S608


def read_identity(database: Database, dbapi_connection: Any) -> dict[str, str]:
    """The identity of the database behind a raw connection; ends its transaction."""
    cursor: Cursor = dbapi_connection.cursor()
    identity = dict(database.identity(cursor))
    identity["incarnation"] = _values(dbapi_connection).get(1, "missing")
    return identity


def read_tokens(dbapi_connection: Any, names: Iterable[str]) -> dict[str, str]:
    """By guard the token of its last build, "" if there was none; ends the transaction."""
    values = _values(dbapi_connection)
    return {name: values.get(_row_of(name), "") for name in names}


def read_again(
    database: Database, dbapi_connection: Any, names: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Identity and tokens, read inside an open transaction. Raises errors of the driver.

    Where an error would end the transaction, the table is looked up first.
    """
    if getattr(getattr(dbapi_connection, "_result", None), "unbuffered_active", False):
        raise RuntimeError("PyMySQL reads the rows of another statement")  # it would drop them
    cursor: Any = dbapi_connection.cursor()
    try:
        identity = dict(database.identity(cursor))
        is_there = database.has_table(cursor, TABLE.name)
        values: dict[int, str] = dict(rows(cursor, _READ)) if is_there else {}
    finally:
        cursor.close()
    identity["incarnation"] = values.get(1, "missing")
    return identity, {name: values.get(_row_of(name), "") for name in names}


def leave_token(engine: Engine, name: str) -> str:
    """A new token for a guard whose build has read all rows.

    On PostgreSQL the commit waits for the disk, and so for every commit that the build has seen: a
    crash cannot take back the deletion of a row whose key the filter lacks.
    """
    token = str(uuid.uuid4())
    while True:
        with contextlib.suppress(IntegrityError), engine.begin() as connection:
            database_of(engine.dialect).commit_to_disk(connection)
            connection.execute(delete(TABLE).where(TABLE.c.id == _row_of(name)))
            connection.execute(insert(TABLE).values(id=_row_of(name), value=token))
            return token  # otherwise another build has left its token at the same time


def _row_of(name: str) -> int:
    """The row of a guard's token. If two guards shared one, each would make the other rebuild."""
    return 2 + zlib.crc32(name.encode()) % 2_000_000_000


def _values(dbapi_connection: Any) -> dict[int, str]:
    try:
        return dict(rows(dbapi_connection.cursor(), _READ))
    except Exception:  # noqa: BLE001  each driver has its own error for a missing table
        return {}
    finally:
        dbapi_connection.rollback()


def ensure_incarnation(engine: Engine) -> None:
    """Inserts the row if it is missing; another program may do so at the same time."""
    with contextlib.suppress(DBAPIError), engine.begin() as connection:
        TABLE.create(connection, checkfirst=True)
    with engine.begin() as connection:
        if connection.execute(select(TABLE.c.id).where(TABLE.c.id == 1)).first() is not None:
            return
    with contextlib.suppress(IntegrityError), engine.begin() as connection:
        connection.execute(insert(TABLE).values(id=1, value=str(uuid.uuid4())))
