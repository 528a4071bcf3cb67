"""The outbox of a guard: a table, and triggers that write each new key to it, as SQL.

    bloomstore_outbox_<guard>    key_1, key_2, ... with the values as they are stored
        PostgreSQL   xid         the writing transaction, indexed
        elsewhere    id          never used twice, even by an outbox that is created again

The triggers run after the row has its final values, in the writer's transaction: a key is in the
outbox if and only if its row was written. They see what no capture sees: other programs, COPY and
LOAD DATA, raw cursors, rows that other triggers make or change. They miss what a database
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Dialect

from bloomstore.errors import SpecError
from bloomstore.sql.databases import KINDS, database_of, is_known
from bloomstore.sql.databases.outbox_names import OutboxNames
from bloomstore.sql.databases.queries import quoted
from bloomstore.sql.schema.registry import TABLE as REGISTRY

PREFIX = "bloomstore_outbox_"


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
    """The statements for the outbox of one guard."""

    guard: str
    table: str
    columns: Sequence[str]
    schema: str | None
    dialect: Dialect

    def __post_init__(self) -> None:
        if not is_known(self.dialect):
            raise SpecError(f"no outbox is known for {self.dialect.name}: {KINDS}")

    # Statements --------------------------------------------------------------------

    def create(self) -> Iterator[str]:
        """Creates the outbox; the guard is invalid until it is built after this."""
        database = database_of(self.dialect)
        yield from database.create_outbox(self._names)
        yield self.invalidate()
        # A position from before this moment, in an outbox that had this name, is below it.
        yield self._update(
            outbox=quoted(outbox_name(self.guard)),
            floor=database.TRAITS.outbox_floor,
            follower="NULL",
        )

    def drop(self) -> Iterator[str]:
        """Drops the outbox; its unread keys are lost, so the guard is invalid."""
        yield self.invalidate()
        yield self._update(outbox="NULL", floor="NULL", follower="NULL")
        yield from database_of(self.dialect).drop_outbox(self._names)

    def invalidate(self) -> str:
        """Raises the guard's epoch; makes its row if it has none."""
        schema = "NULL" if self.schema is None else quoted(self.schema)
        names = json.dumps(list(self.columns), ensure_ascii=False)
        values = [quoted(self.guard), schema, quoted(self.table), quoted(names)]
        return (
            f"INSERT INTO {REGISTRY.name} (name, schema_name, table_name, column_names, epoch)"
            f" VALUES ({', '.join(values)}, 1)"
            f" {database_of(self.dialect).on_conflict(REGISTRY.name, 'name', 'epoch')}"
        )

    def _update(self, **values: str) -> str:
        changes = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"UPDATE {REGISTRY.name} SET {changes} WHERE name = {quoted(self.guard)}"

    @property
    def _names(self) -> OutboxNames:
        inserts, updates = trigger_names(self.guard)
        return OutboxNames(
            outbox_name(self.guard),
            inserts,
            updates,
            self.table,
            self.columns,
            key_names(len(self.columns)),
            database_of(self.dialect).outbox_schema(self.dialect, self.schema),
            self.dialect,
        )
