"""MariaDB and MySQL: only binary collations compare in a way that is known here.

Most collations pad with blanks, binary ones too; without strict mode values are cut and clipped
silently, so a connection that is not strict is in doubt.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace

from sqlalchemy.engine import Connection

from bloomstore.sql import canon
from bloomstore.sql.canon import Canon
from bloomstore.sql.databases.facts import (
    ColumnFacts,
    Cursor,
    StillOpen,
    TableFacts,
    mentions,
    pause,
    quoted,
    rows,
)

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("varchar", "char", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_IDENTITY = ("server_uuid", "server_uid", "server_id", "gtid_domain_id", "hostname")


def identity(cursor: Cursor) -> dict[str, str]:
    """Whatever this version has of names for itself, and the database."""
    names = ", ".join(quoted(name) for name in _IDENTITY)
    found = {"kind": "mysql"}
    for name, value in rows(cursor, f"SHOW VARIABLES WHERE Variable_name IN ({names})"):
        found[name] = str(value)
    ((database,),) = rows(cursor, "SELECT DATABASE()")
    found["database"] = str(database)
    return found


def is_exact(cursor: Cursor) -> str:
    """Without strict mode a value that does not fit is clipped, not refused."""
    ((mode,),) = rows(cursor, "SELECT @@SESSION.sql_mode")
    return "" if "STRICT_" in mode else "the connection's sql_mode is not strict"


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Everything from information_schema."""
    ((version,),) = rows(cursor, "SELECT VERSION()")
    version = ".".join(version.split(".")[:2])
    where = f"table_schema = {'DATABASE()' if schema is None else quoted(schema)}"
    of_table = f"{where} AND table_name = {quoted(table)}"
    found = rows(
        cursor,
        f"SELECT engine, table_type FROM information_schema.tables WHERE {of_table}",
    )
    if not found:
        return TableFacts(version, doubt=f"there is no table {table!r}")
    full = ".".join(f"`{name.replace('`', '``')}`" for name in (schema, table) if name is not None)
    if rows(cursor, f"SHOW CREATE TABLE {full}")[0][1].startswith("CREATE TEMPORARY"):
        return TableFacts(version, doubt=f"a temporary table stands before {table!r}")
    if found[0] != ("InnoDB", "BASE TABLE"):
        return TableFacts(version, doubt=f"not an InnoDB table: {found[0]}")
    columns = {}
    for row in rows(
        cursor,
        "SELECT column_name, data_type, column_type, collation_name, character_maximum_length,"
        " numeric_scale, datetime_precision, extra, column_default"
        f" FROM information_schema.columns WHERE {of_table}",
    ):
        has_default = row[8] not in (None, "NULL") or "auto_increment" in row[7].lower()
        columns[row[0].lower()] = replace(_column(*row[1:8]), has_default=has_default)
    feeds = rows(
        cursor,
        "SELECT trigger_name FROM information_schema.triggers"
        f" WHERE trigger_name LIKE 'bloomstore%' AND event_object_table = {quoted(table)}"
        f" AND {where.replace('table_schema', 'event_object_schema')}",
    )
    found = rows(
        cursor,
        "SELECT trigger_name, concat(event_object_table, ' ', action_statement)"
        " FROM information_schema.triggers WHERE trigger_name NOT LIKE 'bloomstore%'",
    ) + rows(
        cursor,
        "SELECT table_name, view_definition FROM information_schema.views"
        " WHERE is_updatable = 'YES' AND table_schema NOT IN ('sys', 'mysql')",
    )
    names = _writing(cursor, table) if found else {table}
    writers = tuple(name for name, text in found if any(mentions(text, each) for each in names))
    hazards = {}
    for name, rule in rows(
        cursor,
        "SELECT k.column_name, r.update_rule FROM information_schema.key_column_usage k"
        " JOIN information_schema.referential_constraints r"
        " ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name"
        f" AND r.table_name = k.table_name WHERE k.{of_table.replace('AND ', 'AND k.')}"
        " AND r.update_rule IN ('CASCADE', 'SET DEFAULT')",
    ):
        hazards[name.lower()] = f"a foreign key changes it: ON UPDATE {rule}"
    return TableFacts(version, columns, writers, tuple(name for (name,) in feeds), hazards)


def _writing(cursor: Cursor, table: str) -> set[str]:
    """The table, and every routine that may write to it, by itself or by others that it calls."""
    routines = rows(
        cursor,
        "SELECT routine_name, routine_definition FROM information_schema.routines"
        " WHERE routine_schema NOT IN ('sys', 'mysql')",
    )
    names, before = {table}, set[str]()
    while names != before:
        before = set(names)
        for name, body in routines:  # a body that must not be read may do anything
            if body is None or any(mentions(body, each) for each in before):
                names.add(name)
    return names


def _column(
    data_type: str,
    column_type: str,
    collation: str | None,
    length: int | None,
    scale: int | None,
    places: int | None,
    extra: str,
) -> ColumnFacts:
    collation = collation or ""
    if "GENERATED" in extra.upper().replace("DEFAULT_GENERATED", ""):
        return ColumnFacts(column_type, collation, doubt="a generated column")
    if "on update" in extra.lower():
        return ColumnFacts(column_type, collation, doubt="it changes with every UPDATE")
    form: Canon | None = None
    if data_type in _INTEGERS:
        # An AUTO_INCREMENT column makes a number of its own out of 0.
        replaced = (0,) if "auto_increment" in extra.lower() else ()
        form = Canon("integer only/1", canon.integer_only, int, replaced)
    elif data_type in _TEXTS:
        form = _text(data_type, collation, length)
        if form is None:
            return ColumnFacts(column_type, collation, doubt=f"collation {collation} is not binary")
    elif data_type in _BYTES:
        form = Canon("binary/1", canon.binary)
    elif data_type == "binary":
        form = Canon("binary without trailing zeros/1", canon.binary_without_trailing_zeros)
    elif data_type == "decimal":
        form = Canon(f"decimal {scale}/1", canon.decimal(int(scale or 0)))
    elif column_type in ("double", "double unsigned"):
        form = Canon("double/1", canon.double)
    elif data_type == "date":
        form = Canon("day/1", canon.day)
    elif data_type == "datetime":
        form = Canon(f"wall time {places or 0}/1", canon.wall_time(int(places or 0)))
    elif data_type == "uuid":
        form = Canon("uuid/1", canon.uuid)
    if form is None:
        return ColumnFacts(
            column_type, collation, doubt=f"type {column_type} has no known canonical form"
        )
    return ColumnFacts(column_type, collation, form)


def _text(data_type: str, collation: str, length: int | None) -> Canon | None:
    if not collation.endswith("_bin"):
        return None
    is_padded = "nopad" not in collation and "0900" not in collation
    if is_padded or data_type == "char":
        return Canon("text without trailing blanks/1", canon.text_without_trailing_blanks)
    if data_type == "varchar":
        return Canon(f"text cut at {length}/1", canon.text_cut(int(length or 0)), stored=str)
    return Canon("text/1", canon.text, str)


_TRUNCATED = "... truncated..."
_ACTIVE = re.compile(r"^---TRANSACTION (\S+), ACTIVE", re.MULTILINE)


def wait_for_writers(connection: Connection, patience: float) -> None:
    """Waits for every InnoDB transaction of this moment, prepared ones too.

    Not from information_schema.innodb_trx: it shows an old moment while anybody else reads it
    every 100 ms.
    """
    ends = time.monotonic() + patience
    open_now = _open_transactions(connection)
    while open_now:
        if time.monotonic() > ends:
            raise StillOpen(f"transactions {sorted(open_now)}")
        pause(0.02)
        open_now &= _open_transactions(connection)


def _open_transactions(connection: Connection) -> set[str]:
    status = connection.exec_driver_sql("SHOW ENGINE INNODB STATUS").one()[2]
    if _TRUNCATED in status:  # it has at most a megabyte, and leaves transactions out
        raise StillOpen("more transactions than SHOW ENGINE INNODB STATUS can list")
    return set(_ACTIVE.findall(status))


# Transactions that only read are among those that it waits for.
wait_for_readers = wait_for_writers


def begin_snapshot(connection: Connection) -> None:
    """One moment from here on."""
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
