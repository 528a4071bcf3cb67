"""PostgreSQL: identity, waiting by transaction ids, snapshots, settings and outboxes.

Tables are read in postgresql_tables.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, text
from sqlalchemy.engine import URL, Connection, Dialect

from bloomstore.sql.databases.contract import (
    Cursor,
    Place,
    SettingsRead,
    StillOpen,
    Traits,
)
from bloomstore.sql.databases.outbox_names import OutboxNames
from bloomstore.sql.databases.postgresql_tables import read_table as read_table
from bloomstore.sql.databases.queries import pause, quoted, rows
from bloomstore.sql.databases.snapshot_sql import XID, XMAX, XMIN

TRAITS = Traits(
    snapshot_level="REPEATABLE READ",
    casts_values=True,
    has_transaction_ids=True,
    crash_loses_commits=True,
    outbox_floor=f"{XID} + 1",
)


def identity(cursor: Cursor) -> dict[str, str]:
    """The cluster, the database and the timeline. A standby has no timeline of its own."""
    ((standby, database),) = rows(
        cursor,
        "SELECT pg_is_in_recovery(), oid FROM pg_database WHERE datname = current_database()",
    )
    ((system,),) = rows(cursor, "SELECT system_identifier FROM pg_control_system()")
    facts = {"kind": "postgresql", "system": str(system), "database": str(database)}
    if not standby:
        ((wal,),) = rows(cursor, "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
        facts["timeline"] = wal[:8]
    return facts


def is_exact(cursor: Cursor) -> str:
    """PostgreSQL stores a value as it is sent or raises, unless an encoding converts it."""
    ((server, client),) = rows(
        cursor, "SELECT current_setting('server_encoding'), current_setting('client_encoding')"
    )
    if (server, client) != ("UTF8", "UTF8"):
        return f"the encodings of server and client are {server} and {client}, not UTF8"
    return ""


# Transactions below a limit that have not ended. Those of other databases of the cluster never
# touch this one; those of an unknown database are waited for.
_RUNNING = """
SELECT count(*) FROM pg_snapshot_xip(pg_current_snapshot()) AS x(id)
WHERE x.id::text::bigint < {limit} AND mod(x.id::text::bigint, 4294967296)::text NOT IN (
    SELECT backend_xid::text FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND datname <> current_database()
    UNION ALL SELECT transaction::text FROM pg_prepared_xacts WHERE database <> current_database())
"""
# Of other roles' backends a role without pg_read_all_stats sees little more than backend_xid and
# backend_xmin, the oldest transaction that their snapshot, if any, does not see as ended.
_WAITED_FOR = """
SELECT pid, coalesce(usename, ''), coalesce(application_name, ''), xact_start::text,
       coalesce(state, ''), left(coalesce(query, ''), 80)
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND (
    backend_type = 'client backend' AND xact_start < {started}::timestamptz
    OR backend_type IS NULL AND age(backend_xmin) > age('{xid}'::xid)
    OR age(backend_xid) > age('{xid}'::xid))
"""
_PREPARED = """
SELECT gid, owner, prepared::text FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < {started}::timestamptz
"""


def wait_for_writers(connection: Connection, patience: float) -> None:
    """Waits for every transaction with an id, every older snapshot, and prepared ones."""
    ends = time.monotonic() + patience
    ask = connection.exec_driver_sql
    limit = ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").scalar_one()
    started = quoted(ask("SELECT clock_timestamp()::text").scalar_one())
    while True:
        running = ask(_RUNNING.format(limit=limit)).scalar_one()
        waited_for = ask(_WAITED_FOR.format(started=started, xid=limit % 2**32)).all()
        prepared = ask(_PREPARED.format(started=started)).all()
        if not running and not waited_for and not prepared:
            return
        if time.monotonic() > ends:
            database = ask("SELECT current_database()").scalar_one()
            raise StillOpen(f"in database {database}: " + "; ".join(_shown(waited_for, prepared)))
        pause(0.02)


def _shown(waited_for: Sequence[Any], prepared: Sequence[Any]) -> list[str]:
    """Transactions for a message: role, start and last statement."""
    shown = [
        f"process {pid} of {user or 'an unknown role'}"
        + (f" ({application})" if application else "")
        + (f", in a transaction since {since}, {state}: {query}" if since else "")
        for pid, user, application, since, state, query in waited_for
    ]
    shown += [f"prepared {gid!r} of {owner} since {since}" for gid, owner, since in prepared]
    return shown or ["transactions that no view lists, such as those of background processes"]


# Transactions that only read are among those that it waits for.
wait_for_readers = wait_for_writers


def mark(connection: Connection, schema: str | None, table: str) -> str:
    """The oid of the table, and the versions of the collations that order its texts."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    full = ".".join(quote(part) for part in (schema, table) if part is not None)
    marks = connection.execute(
        text(
            "SELECT c.oid, (SELECT string_agg(pg_collation_actual_version(a.attcollation), ','"
            " ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid"
            " AND a.attcollation <> 0) FROM pg_class c WHERE c.oid = to_regclass(:full)"
        ),
        {"full": full},
    ).first()
    return "" if marks is None else f"{marks[0]} {marks[1] or ''}".strip()


def why_not_whole(
    connection: Connection, schema: str | None, table: str, columns: Sequence[str]
) -> str:
    """Always "": ORDER BY compares whole values."""
    return ""


def proof(url: URL) -> dict[str, Any]:
    """Nothing: the identity already differs."""
    return {}


def why_behind(connection: Connection) -> str:
    """A standby replays commits of its primary with a delay."""
    if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one():
        return "the server is a standby, which may lack the newest rows: read from its primary"
    return ""


def begin_snapshot(connection: Connection) -> None:
    """Begins REPEATABLE READ, which sees the moment of its first statement.

    Row level security would leave rows out silently; with row_security off it raises an error.
    Floats are read to the last digit.
    """
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    connection.exec_driver_sql("SET LOCAL row_security = off")
    connection.exec_driver_sql("SET LOCAL extra_float_digits = 1")


def why_hidden(error: Exception) -> str:
    """Advice for a missing privilege, or for a policy that would hide rows."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if code != "42501":
        return ""
    return (
        "every row must be read: use the owner of the table (not with FORCE ROW LEVEL SECURITY), a"
        " role with BYPASSRLS, or a superuser"
    )


# Connections -----------------------------------------------------------------------

_SETTINGS = (
    "default_transaction_isolation",
    "DateStyle",
    "client_encoding",
    "session_replication_role",
    "standard_conforming_strings",
    "extra_float_digits",
)


def why_missing(url: URL) -> str:
    """Always "": only the server knows."""
    return ""


def read_settings(cursor: Cursor, places: Iterable[Place]) -> SettingsRead:
    """Not by to_regclass: for a schema that may not be used it raises and ends the transaction."""
    names = ", ".join(quoted(name) for schema, name in places if schema is None) or "''"
    settings = ", ".join(f"pg_catalog.current_setting('{name}')" for name in _SETTINGS)
    ((level, *values),) = rows(
        cursor,
        f"SELECT pg_catalog.current_setting('transaction_isolation'), {settings},"
        " pg_catalog.array_to_string(ARRAY("
        f"SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relname IN ({names})"
        " AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY c.oid), ',')",
    )
    return str(level).upper(), tuple(values)


def outside(connection: Connection) -> Connection:
    """The connection under AUTOCOMMIT: each statement is its own transaction."""
    return connection.execution_options(isolation_level="AUTOCOMMIT")


def commit_to_disk(connection: Connection) -> None:
    """Overrides synchronous_commit for this transaction."""
    connection.exec_driver_sql("SET LOCAL synchronous_commit = local")


def has_table(cursor: Cursor, name: str) -> bool:
    """An error would end the transaction, so the table is looked up first."""
    return rows(cursor, f"SELECT to_regclass({quoted(name)}) IS NOT NULL") == [(True,)]


def snapshot_ids(connection: Connection) -> tuple[int, int]:
    """The ids of the open transaction's snapshot; begins a transaction if there is none."""
    xmin, xmax = connection.exec_driver_sql(f"SELECT {XMIN}, {XMAX}").one()
    return xmin, xmax


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column itself: drivers convert by the type of the result, not the declared one."""
    return column


# Outboxes --------------------------------------------------------------------------


def outbox_schema(dialect: Dialect, schema: str | None) -> str | None:
    """Always a schema: functions that run as another role must not search for names."""
    return schema or getattr(dialect, "default_schema_name", None) or "public"


def create_outbox(names: OutboxNames) -> Iterator[str]:
    """Statements for an outbox of keys with the id of the writing transaction.

    Triggers write as the owner of their function, so writers need no right to the outbox.
    """
    outbox = names.full_outbox
    yield (
        f"CREATE TABLE {outbox} AS SELECT {names.copied_columns} FROM {names.full_table}"
        " WITH NO DATA"
    )
    yield f"ALTER TABLE {outbox} ADD xid bigint NOT NULL DEFAULT {XID}"
    yield f"CREATE INDEX ON {outbox} (xid)"
    insert = f"{names.insert_into(outbox)} VALUES ({names.new_values})"
    yield (
        f"CREATE FUNCTION {outbox}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp"
        f" AS $$ BEGIN {insert}; RETURN NULL; END $$"
    )
    for name, event, when in names.events("NEW.{0} IS DISTINCT FROM OLD.{0}"):
        yield (
            f"CREATE TRIGGER {names.quote(name)} AFTER {event} ON {names.full_table}"
            f" FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {outbox}()"
        )
        # Also for rows that logical replication brings.
        yield f"ALTER TABLE {names.full_table} ENABLE ALWAYS TRIGGER {names.quote(name)}"


def drop_outbox(names: OutboxNames) -> Iterator[str]:
    """Drops the triggers, which belong to their table and have no schema, and the outbox."""
    for name in (names.inserts, names.updates):
        yield f"DROP TRIGGER IF EXISTS {names.quote(name)} ON {names.full_table}"
    yield f"DROP FUNCTION IF EXISTS {names.full_outbox}()"
    yield f"DROP TABLE IF EXISTS {names.full_outbox}"


def on_conflict(table: str, key: str, counter: str) -> str:
    """PostgreSQL's form, which adds to the counter of the existing row."""
    return f"ON CONFLICT ({key}) DO UPDATE SET {counter} = {table}.{counter} + 1"
