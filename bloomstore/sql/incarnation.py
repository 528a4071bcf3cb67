"""Which database this is: a row in it that says so, and what the server says of itself.

The row alone is not enough (a standby has it too), nor is the server alone (an SQLite file is no
server). Both are compared with what was written down when a guard was built.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError

from bloomstore.sql.databases import Database
from bloomstore.sql.databases.facts import Cursor, rows

TABLE = Table(
    "bloomstore_incarnation",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", String(36), nullable=False),
)
_READ = f"SELECT value FROM {TABLE.name} WHERE id = 1"  # noqa: S608


def read_identity(database: Database, dbapi_connection: Any) -> dict[str, str]:
    """The identity of the database behind a raw connection; ends its transaction."""
    cursor: Cursor = dbapi_connection.cursor()
    found = dict(database.identity(cursor))
    try:
        values = rows(cursor, _READ)
    except Exception:  # noqa: BLE001  each driver has its own error for a missing table
        values = []
    finally:
        dbapi_connection.rollback()
    found["incarnation"] = values[0][0] if values else "missing"
    return found


def ensure_incarnation(engine: Engine) -> None:
    """Makes the row if it is missing."""
    with engine.begin() as connection:
        TABLE.create(connection, checkfirst=True)
        if connection.execute(select(TABLE.c.id).where(TABLE.c.id == 1)).first() is not None:
            return
    with contextlib.suppress(IntegrityError), engine.begin() as connection:
        connection.execute(insert(TABLE).values(id=1, value=str(uuid.uuid4())))
