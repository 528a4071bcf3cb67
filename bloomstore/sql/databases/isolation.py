"""Isolation levels, and whether a SELECT that is not sent makes a difference under them."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection

from bloomstore.sql.databases import traits_of
from bloomstore.sql.sqlalchemy_private import isolation_level_on_connect


def allows_skipping(bind: Any) -> bool:
    """Whether skipping a SELECT is unobservable at this isolation level.

    The SELECT would have taken no lock, and it would have read the guarded table itself.
    """
    if "schema_translate_map" in bind.get_execution_options():
        return False
    level = level_of(bind)
    if level == "SERIALIZABLE":  # also the name of SQLite's only level
        return traits_of(bind.dialect).reads_lock_nothing
    return level not in ("", "READ UNCOMMITTED")


def has_snapshots(bind: Any) -> bool:
    """Whether a transaction keeps seeing the moment of its first statement."""
    return level_of(bind) == "REPEATABLE READ" or traits_of(bind.dialect).has_snapshots


def is_autocommit(connection: Connection) -> bool:
    """Whether each statement of the connection is a transaction of its own."""
    raw: Any = connection.connection.dbapi_connection
    if connection.dialect.detect_autocommit_setting(raw):
        return True
    # Python 3.12 has its own switch: sqlite3.connect(..., autocommit=True).
    return connection.dialect.name == "sqlite" and getattr(raw, "autocommit", None) is True


def level_of(bind: Any) -> str:
    """The isolation level of a connection, or of an engine's: "" while it has had none."""
    dialect = bind.dialect
    return str(
        bind.get_execution_options().get("isolation_level")
        or isolation_level_on_connect(dialect)
        or getattr(dialect, "default_isolation_level", None)
        or ""
    )
