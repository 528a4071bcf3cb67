"""The facts of a table of MariaDB or MySQL, from information_schema.

Only binary collations compare in a way that is known here. Most collations pad with blanks, binary
ones too.
"""

from __future__ import annotations

from dataclasses import replace

from bloomstore.sql.databases import canonical
from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.databases.contract import ColumnFacts, Cursor, TableFacts
from bloomstore.sql.databases.queries import mentions, quoted, rows

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
_PARTITIONED = "the table is partitioned: EXCHANGE PARTITION and CONVERT TABLE add rows unseen"


def read_table(cursor: Cursor, schema: str | None, table: str) -> TableFacts:
    """The facts of one table, all from information_schema."""
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
        for name, body in routines:  # a body that may not be read may do anything
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
        # An AUTO_INCREMENT column replaces 0 with a new number.
        replaced = (0,) if "auto_increment" in extra.lower() else ()
        room = canonical.integers(_INTEGERS[data_type], is_signed="unsigned" not in column_type)
        form = Canon("integer only/1", canonical.integer(room), int, replaced, room=room)
    elif data_type in _TEXTS:
        if not collation.endswith("_bin"):
            return ColumnFacts(column_type, collation, doubt=f"collation {collation} is not binary")
        if characters not in _KEEP_ASCII and characters not in _UNICODE:
            doubt = f"how character set {characters} stores text is not known"
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
