"""The facts of a PostgreSQL table, from the system catalogs.

Deterministic collations compare bytes; everything else is in doubt.
"""

from __future__ import annotations

from dataclasses import replace

from bloomstore.sql.databases import canonical
from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.databases.contract import ColumnFacts, Cursor, TableFacts
from bloomstore.sql.databases.queries import quoted, rows

_TEXTS = canonical.Texts(has_nul=False)


def _integer(bits: int) -> Canon:
    room = canonical.integers(bits)
    return Canon("integer/1", canonical.integer(room), int, room=room)


_TEXT = Canon("text/1", canonical.text(_TEXTS), str, room=_TEXTS)
_PLAIN: dict[str, Canon] = {
    "int2": _integer(16),
    "int4": _integer(32),
    "int8": _integer(64),
    "bool": Canon("boolean/1", canonical.boolean),
    "float8": Canon("double/1", canonical.double),
    "float4": Canon("single/1", canonical.single),
    "uuid": Canon("uuid/1", canonical.uuid),
    "bytea": Canon("binary/1", canonical.binary),
    "date": Canon("day/1", canonical.day),
    "text": _TEXT,
}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typtype::text, a.atttypmod,
       coalesce(c.collname, ''), coalesce(c.collisdeterministic, true), a.attgenerated::text,
       (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
        FROM pg_enum e WHERE e.enumtypid = t.oid),
       (SELECT array_agg(e.enumlabel::text) FROM pg_enum e WHERE e.enumtypid = t.oid),
       EXISTS (SELECT FROM pg_operator o JOIN pg_type x ON x.oid IN (o.oprleft, o.oprright)
               WHERE o.oprname = '=' AND o.oid >= 16384 AND x.typcategory = t.typcategory
               AND (x.oid = t.oid OR x.typnamespace = 'pg_catalog'::regnamespace)),
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


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """Everything from the system catalogs."""
    ((number, digits),) = rows(
        cursor,
        "SELECT current_setting('server_version_num'), current_setting('extra_float_digits')",
    )
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
        column = replace(_column(*row), has_default=has_default)
        if int(digits) < 1 and column.type in ("real", "double precision"):
            column = replace(column, blurred=f"extra_float_digits is {digits}: floats are rounded")
        if name.lower() in columns:
            column = replace(column, canon=None, doubt="another column differs in case only")
        columns[name.lower()] = column
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
    each: list[str] | None,
    has_operator: bool,
) -> ColumnFacts:
    if labels is not None:  # a label that is renamed is renamed in every row
        shown = f"{shown} ({labels})"
    if generated:
        return ColumnFacts(shown, collation, doubt="a generated column")
    if not is_deterministic:
        return ColumnFacts(shown, collation, doubt=f"collation {collation!r} is not deterministic")
    if has_operator:
        return ColumnFacts(
            shown, collation, doubt="its type has an operator = that is not PostgreSQL's own"
        )
    form = _PLAIN.get(type_name) if kind == "b" else None
    length = None if modifier < 0 else modifier - 4
    if kind == "e":
        room = frozenset(each or ())
        form = Canon("text/1", canonical.text(room), str, room=room)
    elif kind == "b" and type_name == "varchar":
        form = _TEXT
        if length is not None:
            cut = canonical.text_cut(_TEXTS, length)
            form = Canon(f"text cut at {length}/1", cut, stored=str)
    elif kind == "b" and type_name == "bpchar":
        stripped = canonical.text_without_trailing_blanks(_TEXTS, length)
        form = Canon("text without trailing blanks/1", stripped)
    elif kind == "b" and type_name == "numeric":
        scale = None if length is None else ((length & 0x7FF) ^ 1024) - 1024
        precision = None if length is None else length >> 16
        shown_scale = "any" if scale is None else scale
        form = Canon(f"decimal {shown_scale}/1", canonical.decimal(scale, precision))
    elif kind == "b" and type_name == "timestamp":
        places = 6 if modifier < 0 else modifier
        form = Canon(f"wall time {places}/1", canonical.wall_time(places))
    elif kind == "b" and type_name == "timestamptz" and modifier in (-1, 6):
        form = Canon("instant/1", canonical.instant)
    if form is None:
        return ColumnFacts(shown, collation, doubt=f"type {shown} has no known canonical form")
    return ColumnFacts(shown, collation, form)
