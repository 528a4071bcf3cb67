"""MariaDB and MySQL: identity, waiting for InnoDB's transactions, settings and outboxes.

Without strict mode values are cut and clipped silently, so a connection that is not strict is in
doubt. Tables are read in mysql_tables.py.
"""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, text
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.exc import DBAPIError

from bloomstore.sql.databases.contract import (
    Cursor,
    Place,
    SettingsRead,
    StillOpen,
    Traits,
)
from bloomstore.sql.databases.mysql_tables import read_table as read_table
from bloomstore.sql.databases.outbox_names import OutboxNames, first_id
from bloomstore.sql.databases.queries import pause, quoted, rows

TRAITS = Traits(
    snapshot_level="REPEATABLE READ",
    clips_values=True,
    cascades_run_triggers=False,
)
_IDENTITY = ("server_uuid", "server_uid", "server_id", "gtid_domain_id", "hostname")


def identity(cursor: Cursor) -> dict[str, str]:
    """The names that this version has for its server, and the database."""
    names = ", ".join(quoted(name) for name in _IDENTITY)
    facts = {"kind": "mysql"}
    for name, value in rows(cursor, f"SHOW VARIABLES WHERE Variable_name IN ({names})"):
        facts[name] = str(value)
    ((database,),) = rows(cursor, "SELECT DATABASE()")
    facts["database"] = str(database)
    return facts


def is_exact(cursor: Cursor) -> str:
    """Without strict mode a value that does not fit is clipped, not refused.

    And a character that the connection's character set lacks becomes a question mark.
    """
    ((mode, *sets),) = rows(
        cursor,
        "SELECT @@SESSION.sql_mode, @@SESSION.character_set_client,"
        " @@SESSION.character_set_connection, @@SESSION.character_set_results",
    )
    if "STRICT_" not in mode:
        return "the connection's sql_mode is not strict"
    if sets != ["utf8mb4"] * 3:
        return f"the connection's character sets are {', '.join(map(str, sets))}, not utf8mb4"
    return ""


_OF_TABLE = "table_schema = coalesce(:schema, DATABASE()) AND table_name = :table"
_BEHIND = "so it may lack the newest rows: read from the server that its rows are written to"
_TRUNCATED = "... truncated..."
_ACTIVE = re.compile(r"^---TRANSACTION (\S+), ACTIVE", re.MULTILINE)


def wait_for_writers(connection: Connection, patience: float) -> None:
    """Waits for every InnoDB transaction of this moment, prepared ones too.

    Not from information_schema.innodb_trx: it shows an old moment while another client reads it
    every 100 ms.
    """
    ends = time.monotonic() + patience
    open_now = _open_transactions(connection)
    if open_now:
        gc.collect()  # sessions that the program no longer references return their connections
    while open_now:
        if time.monotonic() > ends:
            raise StillOpen("; ".join(_shown(connection, open_now)))
        pause(0.02)
        open_now &= _open_transactions(connection)


def _shown(connection: Connection, transactions: set[str]) -> list[str]:
    """Transactions for a message: user, start and statement, or the number alone."""
    shown = {}
    with contextlib.suppress(DBAPIError):  # it needs the privilege PROCESS
        for number, *who in connection.exec_driver_sql(
            "SELECT t.trx_id, p.id, p.user, p.host, p.db, t.trx_started, left(p.info, 80)"
            " FROM information_schema.innodb_trx t"
            " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
        ):
            thread, user, host, database, since, query = who
            shown[str(number)] = (
                f"connection {thread} of {user}@{host}, in a transaction since {since}, database"
                f" {database}: {query or 'idle'}"
            )
    return [shown.get(each, f"transaction {each}") for each in sorted(transactions)]


def _open_transactions(connection: Connection) -> set[str]:
    status = connection.exec_driver_sql("SHOW ENGINE INNODB STATUS").one()[2]
    if _TRUNCATED in status:  # the status has at most a megabyte, and leaves transactions out
        raise StillOpen("more transactions than SHOW ENGINE INNODB STATUS can list")
    return set(_ACTIVE.findall(status))


# Transactions that only read are among those that it waits for.
wait_for_readers = wait_for_writers


def mark(connection: Connection, schema: str | None, table: str) -> str:
    """The time when the table was created or altered."""
    created = connection.execute(
        text(f"SELECT create_time FROM information_schema.tables WHERE {_OF_TABLE}"),
        {"schema": schema, "table": table},
    ).scalar()
    return "" if created is None else str(created)


def why_not_whole(
    connection: Connection, schema: str | None, table: str, columns: Sequence[str]
) -> str:
    """Texts are sorted by their first bytes only, unless an index gives the order.

    So many are kept as max_sort_length says, 1024 by default. Of the collations that are not known
    to need fewer, a character may take 8.
    """
    limit = connection.exec_driver_sql("SELECT @@SESSION.max_sort_length").scalar_one()
    for name, characters, size_bytes, collation in connection.execute(
        text(
            "SELECT column_name, character_maximum_length, character_octet_length, collation_name"
            f" FROM information_schema.columns WHERE {_OF_TABLE}"
            " AND character_maximum_length IS NOT NULL"
        ),
        {"schema": schema, "table": table},
    ):
        is_known = (collation or "binary").endswith(("_bin", "_general_ci", "binary"))
        longest = size_bytes if is_known else 8 * characters
        if name in columns and longest > limit:
            return (
                f"values of {name} may have {longest} bytes, and MariaDB sorts by the first {limit}"
                " (max_sort_length)"
            )
    return ""


def proof(url: URL) -> dict[str, Any]:
    """Nothing: the identity already differs."""
    return {}


def why_behind(connection: Connection) -> str:
    """A replica may lag. Where the role may not ask, a running replication thread shows one.

    A read-only server is most likely a replica, even while its replication is stopped.
    """
    if connection.exec_driver_sql("SELECT @@GLOBAL.read_only").scalar_one():
        return f"the server is read-only, {_BEHIND}"
    named = "'Slave_running', 'Slaves_running', 'Replica_running'"
    states = connection.exec_driver_sql(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({named})")
    if any(value not in ("OFF", "0") for _, value in states):
        return f"the server replicates another one, {_BEHIND}"
    is_mariadb = getattr(connection.dialect, "is_mariadb", False)
    query = "SHOW ALL SLAVES STATUS" if is_mariadb else "SHOW REPLICA STATUS"
    with contextlib.suppress(DBAPIError):  # most users may not ask
        if connection.exec_driver_sql(query).first() is not None:
            return f"the server is set up to replicate another one, {_BEHIND}"
    return ""


def why_hidden(error: Exception) -> str:
    """Always "": privileges are for tables and columns, and a statement without them fails."""
    return ""


def begin_snapshot(connection: Connection) -> None:
    """Begins a transaction that sees one moment."""
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")


# Connections -----------------------------------------------------------------------

_SETTINGS = (
    "tx_isolation",  # of MariaDB
    "transaction_isolation",
    "sql_mode",
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
)


def why_missing(url: URL) -> str:
    """Always "": only the server knows."""
    return ""


def read_settings(cursor: Cursor, places: Iterable[Place]) -> SettingsRead:
    """The isolation level, the default database, and settings for sending and storing values."""
    wanted = ", ".join(map(quoted, _SETTINGS))
    values = dict(rows(cursor, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({wanted})"))
    levels = [values.pop(name) for name in _SETTINGS[:2] if name in values]
    ((database,),) = rows(cursor, "SELECT DATABASE()")
    return levels[-1].replace("-", " "), (database, *sorted(values.items()))


def outside(connection: Connection) -> Connection:
    """The connection under AUTOCOMMIT: each statement is its own transaction."""
    return connection.execution_options(isolation_level="AUTOCOMMIT")


def commit_to_disk(connection: Connection) -> None:
    """Nothing to do: InnoDB flushes its log in order."""


def has_table(cursor: Cursor, name: str) -> bool:
    """Always True: a missing table raises an error that does not end the transaction."""
    return True


def snapshot_ids(connection: Connection) -> tuple[int, int]:
    """Zeros: transactions cannot read their ids."""
    return 0, 0


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column itself: drivers convert by the type of the result, not the declared one."""
    return column


# Outboxes --------------------------------------------------------------------------


def outbox_schema(dialect: Dialect, schema: str | None) -> str | None:
    """The schema as declared."""
    return schema


def create_outbox(names: OutboxNames) -> Iterator[str]:
    """Statements for an outbox whose rows have an id that is never used again.

    Clients end a statement at every semicolon, so the body of a trigger is one statement.
    """
    outbox = names.full_outbox
    yield (
        f"CREATE TABLE {outbox} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)"
        f" ENGINE=InnoDB AUTO_INCREMENT={first_id()}"
        f" AS SELECT {names.copied_columns} FROM {names.full_table} WHERE FALSE"
    )
    for name, event, when in names.events("NOT (NEW.{0} <=> OLD.{0})"):
        yield (
            f"CREATE TRIGGER {names.in_schema(name)} AFTER {event} ON {names.full_table}"
            f" FOR EACH ROW {names.insert_into(outbox)}"
            f" SELECT {names.new_values} FROM DUAL WHERE {when}"
        )


def drop_outbox(names: OutboxNames) -> Iterator[str]:
    """Drops the triggers, which are in the schema of their table, and the outbox."""
    for name in (names.inserts, names.updates):
        yield f"DROP TRIGGER IF EXISTS {names.in_schema(name)}"
    yield f"DROP TABLE IF EXISTS {names.full_outbox}"


def on_conflict(table: str, key: str, counter: str) -> str:
    """MySQL's form, which names no key."""
    return f"ON DUPLICATE KEY UPDATE {counter} = {counter} + 1"
