"""The outbox of a guard: a table, and triggers that write each new key to it, as SQL.

    bloomstore_outbox_<guard>    key_1, key_2, ... with the values as they are stored
        PostgreSQL   xid         the writing transaction, indexed
        elsewhere    id          never used twice, not by an outbox that is made anew either

The triggers run after the row has its final values, in the writer's transaction: a key is in the
outbox if and only if its row was written. They see what no capture sees: other programs, COPY and
LOAD DATA, raw cursors, rows that other triggers make or change. They do not see what a database
does without running triggers: ALTER of a column, TRUNCATE (harmless: it only removes rows),
DISABLE TRIGGER, ATTACH PARTITION, and on MariaDB foreign keys with ON UPDATE CASCADE and EXCHANGE
PARTITION.

A trigger is not limited to UPDATE OF the key's columns: a BEFORE trigger may change a key in an
update that does not name it. Keys that the database finds equal to the old ones are not written:
their canonical form is the same.

Statements are made for scripts as well as for drivers: clients of MariaDB end a statement at every
semicolon, so the body of a trigger there is a single statement and has none.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Dialect

from bloomstore.errors import SpecError
from bloomstore.sql.databases.contract import quoted
from bloomstore.sql.schema.registry import TABLE as REGISTRY

PREFIX = "bloomstore_outbox_"
_XID = "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"  # tools do not know the type xid8
KINDS = ("postgresql", "mysql", "mariadb", "sqlite")


def outbox_name(guard: str) -> str:
    """The table's name: readable, different for every guard, short enough for every server."""
    digest = hashlib.blake2b(guard.encode(), digest_size=4).hexdigest()
    readable = re.sub(r"[^a-z0-9]+", "_", guard.lower()).strip("_")[:28]
    return f"{PREFIX}{readable}_{digest}"


def key_names(count: int) -> list[str]:
    """The names of an outbox's key columns."""
    return [f"key_{number}" for number in range(1, count + 1)]


def trigger_names(guard: str) -> tuple[str, str]:
    """The triggers that a guarded table must have: for inserts, for updates."""
    return f"{outbox_name(guard)}_i", f"{outbox_name(guard)}_u"


@dataclass(frozen=True, slots=True)
class Outbox:
    """What the statements are made of."""

    guard: str
    table: str
    columns: Sequence[str]
    schema: str | None
    dialect: Dialect

    def __post_init__(self) -> None:
        if self.dialect.name not in KINDS:
            raise SpecError(f"no outbox is known for {self.dialect.name}: {', '.join(KINDS)}")

    # Statements --------------------------------------------------------------------

    def create(self) -> Iterator[str]:
        """Makes the outbox; the guard is invalid until it is built after this."""
        yield from getattr(self, f"_create_{self._kind}")()
        yield self.invalidate()
        # A position from before this moment, in an outbox that had this name, is below it.
        yield self._update(
            outbox=quoted(outbox_name(self.guard)),
            floor=f"{_XID} + 1" if self._kind == "postgresql" else "NULL",
            follower="NULL",
        )

    def drop(self) -> Iterator[str]:
        """Takes it away; whatever is not read by then is lost, so the guard is invalid."""
        yield self.invalidate()
        yield self._update(outbox="NULL", floor="NULL", follower="NULL")
        on = f" ON {self._guarded}" if self._kind == "postgresql" else ""
        for name in trigger_names(self.guard):
            place = self._quote(name) if on else self._in_schema(name)
            yield f"DROP TRIGGER IF EXISTS {place}{on}"
        if on:
            yield f"DROP FUNCTION IF EXISTS {self._own}()"
        yield f"DROP TABLE IF EXISTS {self._own}"

    def invalidate(self) -> str:
        """Raises the guard's epoch; makes its row if it has none."""
        schema = "NULL" if self.schema is None else quoted(self.schema)
        names = json.dumps(list(self.columns), ensure_ascii=False)
        values = [quoted(self.guard), schema, quoted(self.table), quoted(names)]
        conflict = "ON DUPLICATE KEY UPDATE epoch = epoch + 1"
        if self._kind != "mysql":
            conflict = f"ON CONFLICT (name) DO UPDATE SET epoch = {REGISTRY.name}.epoch + 1"
        return (
            f"INSERT INTO {REGISTRY.name} (name, schema_name, table_name, column_names, epoch)"
            f" VALUES ({', '.join(values)}, 1) {conflict}"
        )

    def _update(self, **values: str) -> str:
        changes = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"UPDATE {REGISTRY.name} SET {changes} WHERE name = {quoted(self.guard)}"

    def _create_postgresql(self) -> Iterator[str]:
        columns = ", ".join(map("{} AS {}".format, self._columns, self._keys))
        yield f"CREATE TABLE {self._own} AS SELECT {columns} FROM {self._guarded} WITH NO DATA"
        yield f"ALTER TABLE {self._own} ADD xid bigint NOT NULL DEFAULT {_XID}"
        yield f"CREATE INDEX ON {self._own} (xid)"
        # As its owner: writers need no right to the outbox.
        yield (
            f"CREATE FUNCTION {self._own}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
            f" SET search_path = pg_catalog, pg_temp"
            f" AS $$ BEGIN {self._insert}; RETURN NULL; END $$"
        )
        for name, event, when in self._events("NEW.{0} IS DISTINCT FROM OLD.{0}"):
            yield (
                f"CREATE TRIGGER {self._quote(name)} AFTER {event} ON {self._guarded}"
                f" FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {self._own}()"
            )
            # Also for rows that logical replication brings.
            yield f"ALTER TABLE {self._guarded} ENABLE ALWAYS TRIGGER {self._quote(name)}"

    def _create_mysql(self) -> Iterator[str]:
        columns = ", ".join(map("{} AS {}".format, self._columns, self._keys))
        yield (
            f"CREATE TABLE {self._own} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)"
            f" ENGINE=InnoDB AUTO_INCREMENT={_first_id()}"
            f" AS SELECT {columns} FROM {self._guarded} WHERE FALSE"
        )
        for name, event, when in self._events("NOT (NEW.{0} <=> OLD.{0})"):
            yield (
                f"CREATE TRIGGER {self._in_schema(name)} AFTER {event} ON {self._guarded}"
                f" FOR EACH ROW {self._into} SELECT {self._new} FROM DUAL WHERE {when}"
            )

    def _create_sqlite(self) -> Iterator[str]:
        # Columns without a type keep every value as the guarded column has stored it.
        keys = ", ".join(self._keys)
        yield f"CREATE TABLE {self._own} (id INTEGER PRIMARY KEY AUTOINCREMENT, {keys})"
        yield (
            f"INSERT INTO {self._in_schema('sqlite_sequence')} (name, seq)"  # keeps the last id
            f" VALUES ({quoted(outbox_name(self.guard))}, {_first_id()})"
        )
        for name, event, when in self._events("NEW.{0} IS NOT OLD.{0}"):
            yield (
                f"CREATE TRIGGER {self._in_schema(name)} AFTER {event}"
                f" ON {self._quote(self.table)} WHEN {when} BEGIN {self._insert}; END"
            )

    # Parts -------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return "mysql" if self.dialect.name == "mariadb" else self.dialect.name

    def _quote(self, name: str) -> str:
        """The name quoted; some preparers double percent signs, as their drivers want them."""
        found = self.dialect.identifier_preparer.quote_identifier(name)
        return found.replace("%%", "%") if found.count("%") > name.count("%") else found

    def _in_schema(self, name: str) -> str:
        """PostgreSQL's functions of another owner must not look a name up."""
        schema = self.schema
        if schema is None and self._kind == "postgresql":
            schema = getattr(self.dialect, "default_schema_name", None) or "public"
        return self._quote(name) if schema is None else f"{self._quote(schema)}.{self._quote(name)}"

    @property
    def _own(self) -> str:
        return self._in_schema(outbox_name(self.guard))

    @property
    def _guarded(self) -> str:
        return self._in_schema(self.table)

    @property
    def _columns(self) -> list[str]:
        return [self._quote(name) for name in self.columns]

    @property
    def _keys(self) -> list[str]:
        return key_names(len(self.columns))

    def _events(self, differs: str) -> Iterator[tuple[str, str, str]]:
        """Trigger, event and the condition under which there is a new key."""
        inserts, updates = trigger_names(self.guard)
        is_key = " AND ".join(f"NEW.{name} IS NOT NULL" for name in self._columns)
        yield inserts, "INSERT", is_key
        yield updates, "UPDATE", f"{is_key} AND ({' OR '.join(map(differs.format, self._columns))})"

    @property
    def _insert(self) -> str:
        return f"{self._into} VALUES ({self._new})"

    @property
    def _into(self) -> str:
        """SQLite looks names up in the trigger's own schema, and allows no other way."""
        place = self._quote(outbox_name(self.guard)) if self._kind == "sqlite" else self._own
        return f"INSERT INTO {place} ({', '.join(self._keys)})"

    @property
    def _new(self) -> str:
        return ", ".join(f"NEW.{name}" for name in self._columns)


def _first_id() -> int:
    """Above every id of an outbox that had the same name: microseconds since 1970."""
    return time.time_ns() // 1000
