"""PostgreSQL: deterministic collations compare bytes; everything else is in doubt."""

from __future__ import annotations

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
    pause,
    quoted,
    rows,
)

_PLAIN: dict[str, Canon] = {
    "int2": Canon("integer/1", canon.integer, int),
    "int4": Canon("integer/1", canon.integer, int),
    "int8": Canon("integer/1", canon.integer, int),
    "bool": Canon("boolean/1", canon.boolean),
    "float8": Canon("double/1", canon.double),
    "float4": Canon("single/1", canon.single),
    "uuid": Canon("uuid/1", canon.uuid),
    "bytea": Canon("binary/1", canon.binary),
    "date": Canon("day/1", canon.day),
    "text": Canon("text/1", canon.text, str),
    "bpchar": Canon("text without trailing blanks/1", canon.text_without_trailing_blanks),
}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typtype::text, a.atttypmod,
       coalesce(c.collname, ''), coalesce(c.collisdeterministic, true), a.attgenerated::text,
       (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
        FROM pg_enum e WHERE e.enumtypid = t.oid),
       a.attnum, a.atthasdef OR a.attidentity <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped
"""
# Functions that may write to the table, by themselves or by others that they name.
_TRIGGERS = r"""
WITH RECURSIVE known AS MATERIALIZED (
    SELECT p.oid, lower(p.proname) AS name, lower(pg_get_functiondef(p.oid)) AS body
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE p.prokind IN ('f', 'p') AND l.lanname NOT IN ('internal', 'c')
    AND p.pronamespace <> 'pg_catalog'::regnamespace
    AND EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'bloomstore%')
), writing(oid, name) AS (
    SELECT oid, name FROM known WHERE position(lower({name}) IN body) > 0
        OR position('execute' IN body) > 0
    UNION SELECT k.oid, k.name FROM known k JOIN writing w
        ON k.body ~ ('(^|\W)' || regexp_replace(w.name, '(\W)', '\\\1', 'g') || '(\W|$)')
)
SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgname NOT LIKE 'bloomstore%'
AND (tgrelid = {oid} OR tgfoid IN (SELECT oid FROM writing))
"""
_FEEDS = """
SELECT tgname FROM pg_trigger
WHERE tgrelid = {oid} AND tgenabled = 'A' AND tgname LIKE 'bloomstore%'
"""
_VIEWS = """
SELECT DISTINCT v.relname FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
       JOIN pg_class v ON v.oid = r.ev_class
WHERE d.refobjid = {oid} AND v.oid <> {oid} AND pg_relation_is_updatable(v.oid, true) & 28 <> 0
"""
_KEYS = """
SELECT unnest(conkey) FROM pg_constraint
WHERE conrelid = {oid} AND contype = 'f' AND (confupdtype IN ('c', 'd') OR confdeltype = 'd')
"""


def identity(cursor: Cursor) -> dict[str, str]:
    """The cluster, the database and the timeline. A standby has no timeline of its own."""
    ((standby, database),) = rows(
        cursor,
        "SELECT pg_is_in_recovery(), oid FROM pg_database WHERE datname = current_database()",
    )
    ((system,),) = rows(cursor, "SELECT system_identifier FROM pg_control_system()")
    found = {"kind": "postgresql", "system": str(system), "database": str(database)}
    if not standby:
        ((wal,),) = rows(cursor, "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
        found["timeline"] = wal[:8]
    return found


def is_exact(cursor: Cursor) -> str:
    """PostgreSQL stores what it is sent or raises."""
    return ""


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Everything from the system catalogs."""
    ((number,),) = rows(cursor, "SHOW server_version_num")
    version = str(int(number) // 10_000)
    full = ".".join(
        '"' + part.replace('"', '""') + '"' for part in (schema, table) if part is not None
    )
    ((oid,),) = rows(cursor, f"SELECT to_regclass({quoted(full)})::oid")
    if oid is None:
        return TableFacts(version, doubt=f"there is no table {full}")
    ((kind, rules, persistence, found_in, path, children),) = rows(
        cursor,
        "SELECT relkind::text, relhasrules, relpersistence::text, relnamespace::regnamespace::text,"
        " array_to_string(current_schemas(false), chr(10)),"
        " EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhparent, inhrelid))"
        f" FROM pg_class c WHERE oid = {int(oid)}",
    )
    if persistence == "t":
        return TableFacts(version, doubt=f"a temporary table stands before {full}")
    if kind != "r" or rules or children:
        return TableFacts(version, doubt="not a plain table: writes may reach it unseen")
    numbers = {}
    columns = {}
    for name, *row, place, has_default in rows(cursor, _COLUMNS.format(oid=int(oid))):
        numbers[place] = name.lower()
        found = replace(_column(*row), has_default=has_default)
        if name.lower() in columns:
            found = replace(found, canon=None, doubt="another column differs in case only")
        columns[name.lower()] = found
    triggers = rows(cursor, _TRIGGERS.format(oid=int(oid), name=quoted(table)))
    triggers += rows(cursor, _VIEWS.format(oid=int(oid)))
    hazards = {
        numbers[place]: "a foreign key changes it: ON UPDATE CASCADE or SET DEFAULT"
        for (place,) in rows(cursor, _KEYS.format(oid=int(oid)))
    }
    feeds = rows(cursor, _FEEDS.format(oid=int(oid)))
    return TableFacts(
        version,
        columns,
        tuple(name for (name,) in triggers),
        tuple(name for (name,) in feeds),
        hazards,
        schema=found_in,
        path=tuple(path.split("\n")),
    )


def _column(
    shown: str,
    type_name: str,
    kind: str,
    modifier: int,
    collation: str,
    is_deterministic: bool,
    generated: str,
    labels: str | None,
) -> ColumnFacts:
    if labels is not None:  # a label that is renamed is renamed in every row
        shown = f"{shown} ({labels})"
    if generated:
        return ColumnFacts(shown, collation, doubt="a generated column")
    if not is_deterministic:
        return ColumnFacts(shown, collation, doubt=f"collation {collation!r} is not deterministic")
    form = _PLAIN.get(type_name) if kind == "b" else None
    if kind == "e":
        form = Canon("text/1", canon.text, str)
    elif kind == "b" and type_name == "varchar":
        length = modifier - 4
        form = (
            Canon("text/1", canon.text, str)
            if modifier < 0
            else Canon(f"text cut at {length}/1", canon.text_cut(length), stored=str)
        )
    elif kind == "b" and type_name == "numeric":
        scale = None if modifier < 0 else (((modifier - 4) & 0x7FF) ^ 1024) - 1024
        form = Canon(f"decimal {'any' if scale is None else scale}/1", canon.decimal(scale))
    elif kind == "b" and type_name == "timestamp":
        places = 6 if modifier < 0 else modifier
        form = Canon(f"wall time {places}/1", canon.wall_time(places))
    elif kind == "b" and type_name == "timestamptz" and modifier in (-1, 6):
        form = Canon("instant/1", canon.instant)
    if form is None:
        return ColumnFacts(shown, collation, doubt=f"type {shown} has no known canonical form")
    return ColumnFacts(shown, collation, form)


def wait_for_writers(connection: Connection, patience: float) -> None:
    """Waits for every transaction with an id, every older snapshot, and prepared ones.

    Of other roles' backends a role without pg_read_all_stats sees little more than backend_xmin,
    the oldest transaction that their snapshot, if they have one, does not see as ended.
    """
    ends = time.monotonic() + patience
    limit = connection.exec_driver_sql(
        "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    ).scalar_one()
    started = connection.exec_driver_sql("SELECT clock_timestamp()::text").scalar_one()
    while True:
        oldest = connection.exec_driver_sql(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        ).scalar_one()
        waiting = connection.exec_driver_sql(
            "SELECT pid, coalesce(application_name, '') FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            f" AND (backend_type = 'client backend' AND xact_start < {quoted(started)}::timestamptz"
            f" OR backend_type IS NULL AND age(backend_xmin) > age('{limit % 2**32}'::xid))"
        ).all()
        prepared = connection.exec_driver_sql(
            "SELECT gid FROM pg_prepared_xacts"
            f" WHERE database = current_database() AND prepared < {quoted(started)}::timestamptz"
        ).all()
        if oldest >= limit and not waiting and not prepared:
            return
        if time.monotonic() > ends:
            raise StillOpen(
                f"backends {[tuple(row) for row in waiting]},"
                f" prepared {[gid for (gid,) in prepared]}, oldest transaction {oldest}"
            )
        pause(0.02)


# Transactions that only read are among those that it waits for.
wait_for_readers = wait_for_writers


def begin_snapshot(connection: Connection) -> None:
    """REPEATABLE READ sees the moment of its first statement."""
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
