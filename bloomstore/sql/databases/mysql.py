"""MariaDB and MySQL: only binary collations compare in a way that is known here.

Most collations pad with blanks, binary ones too; without strict mode values are cut and clipped
silently, so a connection that is not strict is in doubt.
"""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError

from bloomstore.sql.databases import canonical
from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.databases.contract import (
    ColumnFacts,
    Cursor,
    StillOpen,
    TableFacts,
    mentions,
    pause,
    quoted,
    rows,
)

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_UNICODE = ("utf8mb4", "utf8mb3", "utf8")
# These keep ASCII as it is; cp932 makes one character out of two others, and of the rest nothing is
# known. Not among them: sjis, swe7 and utf16le, which do not even keep ASCII.
_KEEP_ASCII = frozenset(
    """armscii8 ascii big5 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr
    gb2312 gbk geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce
    macroman tis620 ucs2 ujis utf16 utf32""".split()
)
_TEXTS = ("varchar", "char", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_PARTITIONED = "the table is partitioned: EXCHANGE PARTITION and CONVERT TABLE bring in rows unseen"
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


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Everything from information_schema."""
    ((version,),) = rows(cursor, "SELECT VERSION()")
    version = ".".join(version.split(".")[:2])
    where = f"table_schema = {'DATABASE()' if schema is None else quoted(schema)}"
    of_table = f"{where} AND table_name = {quoted(table)}"
    found = rows(
        cursor,
        "SELECT engine, table_type, create_options FROM information_schema.tables"
        f" WHERE {of_table}",
    )
    if not found:
        return TableFacts(version, doubt=f"there is no table {table!r}")
    full = ".".join(f"`{name.replace('`', '``')}`" for name in (schema, table) if name is not None)
    if rows(cursor, f"SHOW CREATE TABLE {full}")[0][1].startswith("CREATE TEMPORARY"):
        return TableFacts(version, doubt=f"a temporary table stands before {table!r}")
    if found[0][:2] != ("InnoDB", "BASE TABLE"):
        return TableFacts(version, doubt=f"not an InnoDB table: {found[0][:2]}")
    unfed = _PARTITIONED if "partitioned" in (found[0][2] or "") else ""
    columns = {}
    for row in rows(
        cursor,
        "SELECT column_name, data_type, column_type, collation_name, character_set_name,"
        " character_maximum_length, numeric_precision, numeric_scale, datetime_precision, extra,"
        " column_default"
        f" FROM information_schema.columns WHERE {of_table}",
    ):
        name, about, default = row[0], row[1:-1], row[-1]
        has_default = default not in (None, "NULL") or "auto_increment" in about[-1].lower()
        columns[name.lower()] = replace(_column(*about), has_default=has_default)
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
    return TableFacts(version, columns, writers, tuple(name for (name,) in feeds), hazards, unfed)


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
    characters: str | None,
    length: int | None,
    precision: int | None,
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
        room = canonical.integers(_INTEGERS[data_type], is_signed="unsigned" not in column_type)
        form = Canon("integer only/1", canonical.integer(room), int, replaced, room=room)
    elif data_type in _TEXTS:
        if not collation.endswith("_bin"):
            return ColumnFacts(column_type, collation, doubt=f"collation {collation} is not binary")
        if characters not in _KEEP_ASCII and characters not in _UNICODE:
            doubt = f"what character set {characters} makes of text is not known"
            return ColumnFacts(column_type, collation, doubt=doubt)
        form = _text(data_type, collation, characters in _UNICODE, int(length or 0))
    elif data_type in _BYTES:
        form = Canon("binary/1", canonical.binary)
    elif data_type == "binary":
        form = Canon("binary without trailing zeros/1", canonical.binary_without_trailing_zeros)
    elif data_type == "decimal":
        form = Canon(
            f"decimal {scale}/1", canonical.decimal(int(scale or 0), int(precision or 0) or None)
        )
    elif column_type in ("double", "double unsigned"):
        form = Canon("double/1", canonical.double)
    elif data_type == "date":
        form = Canon("day/1", canonical.day)
    elif data_type == "datetime":
        form = Canon(f"wall time {places or 0}/1", canonical.wall_time(int(places or 0)))
    elif data_type == "uuid":
        form = Canon("uuid/1", canonical.uuid)
    if form is None:
        return ColumnFacts(
            column_type, collation, doubt=f"type {column_type} has no known canonical form"
        )
    return ColumnFacts(column_type, collation, form)


def _text(data_type: str, collation: str, is_unicode: bool, length: int) -> Canon:
    """Text that is too long has no key: white space at its end is cut off, in strict mode too."""
    is_padded = ("nopad" not in collation and "0900" not in collation) or data_type == "char"
    name = "text without trailing blanks/2" if is_padded else "text/2"
    make = canonical.text_without_trailing_blanks if is_padded else canonical.text
    room = canonical.Texts(is_ascii=not is_unicode)
    if data_type in ("varchar", "char"):
        form = make(room, length)
    else:  # its length is in bytes, of which ASCII takes at most four each
        form = canonical.text_of_bytes(make(room), length if is_unicode else length // 4)
    stored = None if is_padded else str
    return Canon(name, form, stored=stored, of_stored=make(canonical.Texts()))


_OF_TABLE = "table_schema = coalesce(:schema, DATABASE()) AND table_name = :table"
_BEHIND = "so it may lack the newest rows: read from the server that its rows are written to"
_TRUNCATED = "... truncated..."
_ACTIVE = re.compile(r"^---TRANSACTION (\S+), ACTIVE", re.MULTILINE)


def wait_for_writers(connection: Connection, patience: float) -> None:
    """Waits for every InnoDB transaction of this moment, prepared ones too.

    Not from information_schema.innodb_trx: it shows an old moment while anybody else reads it
    every 100 ms.
    """
    ends = time.monotonic() + patience
    open_now = _open_transactions(connection)
    if open_now:
        gc.collect()  # sessions that a program has forgotten give their connections back
    while open_now:
        if time.monotonic() > ends:
            raise StillOpen("; ".join(_shown(connection, open_now)))
        pause(0.02)
        open_now &= _open_transactions(connection)


def _shown(connection: Connection, transactions: set[str]) -> list[str]:
    """Transactions for people: who, since when, what they do; the number alone if nobody knows."""
    found = {}
    with contextlib.suppress(DBAPIError):  # it needs the privilege PROCESS
        for number, *who in connection.exec_driver_sql(
            "SELECT t.trx_id, p.id, p.user, p.host, p.db, t.trx_started, left(p.info, 80)"
            " FROM information_schema.innodb_trx t"
            " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
        ):
            thread, user, host, database, since, query = who
            found[str(number)] = (
                f"connection {thread} of {user}@{host}, in a transaction since {since}, database"
                f" {database}: {query or 'idle'}"
            )
    return [found.get(each, f"transaction {each}") for each in sorted(transactions)]


def _open_transactions(connection: Connection) -> set[str]:
    status = connection.exec_driver_sql("SHOW ENGINE INNODB STATUS").one()[2]
    if _TRUNCATED in status:  # it has at most a megabyte, and leaves transactions out
        raise StillOpen("more transactions than SHOW ENGINE INNODB STATUS can list")
    return set(_ACTIVE.findall(status))


# Transactions that only read are among those that it waits for.
wait_for_readers = wait_for_writers


def mark(connection: Connection, schema: str | None, table: str) -> str:
    """When it was made, or altered."""
    made = connection.execute(
        text(f"SELECT create_time FROM information_schema.tables WHERE {_OF_TABLE}"),
        {"schema": schema, "table": table},
    ).scalar()
    return "" if made is None else str(made)


def why_not_whole(
    connection: Connection, schema: str | None, table: str, columns: Sequence[str]
) -> str:
    """Without an index that gives the order, texts are sorted by their first bytes only.

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
    """The identity tells everything."""
    return {}


def why_behind(connection: Connection) -> str:
    """A replica may lag; where nobody may ask whether it is one, a running thread tells.

    A server that is read-only is one in all likelihood, also while its replication is stopped.
    """
    if connection.exec_driver_sql("SELECT @@GLOBAL.read_only").scalar_one():
        return f"the server is read-only, {_BEHIND}"
    named = "'Slave_running', 'Slaves_running', 'Replica_running'"
    states = connection.exec_driver_sql(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({named})")
    if any(value not in ("OFF", "0") for _, value in states):
        return f"the server replicates another one, {_BEHIND}"
    is_mariadb = getattr(connection.dialect, "is_mariadb", False)
    asked = "SHOW ALL SLAVES STATUS" if is_mariadb else "SHOW REPLICA STATUS"
    with contextlib.suppress(DBAPIError):  # most users may not ask
        if connection.exec_driver_sql(asked).first() is not None:
            return f"the server is set up to replicate another one, {_BEHIND}"
    return ""


def why_hidden(error: Exception) -> str:
    """Privileges are of tables and columns: without them a statement fails."""
    return ""


def begin_snapshot(connection: Connection) -> None:
    """One moment from here on."""
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
