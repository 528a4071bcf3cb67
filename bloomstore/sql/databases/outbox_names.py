"""The names in the statements that make or drop an outbox, quoted for one dialect.

schema/outbox_tables.py decides the names; each kind of database makes its statements of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Dialect


@dataclass(frozen=True, slots=True)
class OutboxNames:
    """Names of one outbox. The fields are bare names, the properties and methods quote them."""

    outbox: str
    inserts: str  # the trigger for inserts
    updates: str  # the trigger for updates
    table: str
    columns: Sequence[str]
    keys: Sequence[str]
    schema: str | None
    dialect: Dialect

    def quote(self, name: str) -> str:
        """The name quoted; some preparers double percent signs, as their drivers want them."""
        quoted = self.dialect.identifier_preparer.quote_identifier(name)
        return quoted.replace("%%", "%") if quoted.count("%") > name.count("%") else quoted

    def in_schema(self, name: str) -> str:
        """The name quoted, behind the schema if there is one."""
        if self.schema is None:
            return self.quote(name)
        return f"{self.quote(self.schema)}.{self.quote(name)}"

    @property
    def full_outbox(self) -> str:
        """The outbox in its schema."""
        return self.in_schema(self.outbox)

    @property
    def full_table(self) -> str:
        """The guarded table in its schema."""
        return self.in_schema(self.table)

    @property
    def copied_columns(self) -> str:
        """The guarded columns under the names of the outbox's keys, for a SELECT."""
        return ", ".join(
            f"{self.quote(column)} AS {key}"
            for column, key in zip(self.columns, self.keys, strict=True)
        )

    @property
    def new_values(self) -> str:
        """The guarded columns of the row that a trigger was run for."""
        return ", ".join(f"NEW.{self.quote(name)}" for name in self.columns)

    def insert_into(self, outbox: str) -> str:
        """The beginning of an INSERT of keys."""
        return f"INSERT INTO {outbox} ({', '.join(self.keys)})"

    def events(self, differs: str) -> Iterator[tuple[str, str, str]]:
        """Trigger, event, and the condition under which there is a new key.

        `differs` compares a column of OLD and NEW, whose name stands for {0}.
        """
        columns = [self.quote(name) for name in self.columns]
        is_key = " AND ".join(f"NEW.{name} IS NOT NULL" for name in columns)
        is_other = " OR ".join(map(differs.format, columns))
        yield self.inserts, "INSERT", is_key
        yield self.updates, "UPDATE", f"{is_key} AND ({is_other})"


def first_id() -> int:
    """Above every id of an outbox that had the same name: microseconds since 1970."""
    return time.time_ns() // 1000
