"""The guards of one plugin: which of them a table has, and what they know of their database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Column, MetaData, Table
from sqlalchemy.engine import Dialect

from bloomstore import Store
from bloomstore.errors import BloomStoreError, SpecError
from bloomstore.sql.active import ActiveGuard
from bloomstore.sql.guard import declared_in, declared_on
from bloomstore.sql.live import read_live

log = logging.getLogger("bloomstore.sql")


class Guards:
    """Those that a MetaData declares, and those of Table objects that are met later."""

    def __init__(self, store: Store, metadata: MetaData | None) -> None:
        self._store = store
        self._by_table: dict[tuple[str | None, str], list[ActiveGuard]] = {}
        self._seen: set[Table] = set()
        self._default_schema: str | None = None
        self.when_new: list[Callable[[], None]] = []  # a new guard changes what plans say
        for declared in () if metadata is None else declared_in(metadata):
            self._activate(ActiveGuard(store, declared))
        if metadata is not None:
            self._seen.update(metadata.tables.values())

    def __iter__(self) -> Iterator[ActiveGuard]:
        for guards in list(self._by_table.values()):
            yield from guards

    def of(self, table: Any) -> list[ActiveGuard]:
        """The guards of the table that this Table object names exactly."""
        return [guard for guard in self.written(table) if guard.declared.table.name == table.name]

    def written(self, table: Any, translated: dict[Any, Any] | None = None) -> list[ActiveGuard]:
        """The guards of every table that this Table object may stand for: spare keys do no harm."""
        if not isinstance(table, Table):
            return []
        if table not in self._seen:
            self._discover(table)
        names = {table.schema, (translated or {}).get(table.schema, table.schema)}
        if self._default_schema is not None and names & {None, self._default_schema}:
            names |= {None, self._default_schema}
        return [
            guard
            for schema in names
            for guard in self._by_table.get((schema, table.name.lower()), ())
        ]

    def of_columns(self, column: Any) -> ActiveGuard:
        """The guard of a column, or of several. Raises SpecError."""
        wanted = tuple(map(_column, column if isinstance(column, (tuple, list)) else (column,)))
        for guard in self.of(wanted[0].table):
            if tuple(each.name for each in guard.declared.columns) == tuple(
                each.name for each in wanted
            ):
                return guard
        names = ", ".join(f"{each.table}.{each.name}" for each in wanted)
        raise SpecError(f"no guard is declared for {names}")

    def meet(self, dialect: Dialect, raw: Any) -> None:
        """Reads the live database on a new connection and compares it with every guard."""
        guards = list(self)
        if not guards:
            return
        self._default_schema = getattr(dialect, "default_schema_name", None)
        try:
            found = read_live(raw, dialect, [guard.declared for guard in guards])
            for guard, live in zip(guards, found, strict=True):
                guard.meet(live)
        except BloomStoreError as error:  # a closed store must not break the application
            log.warning("guards could not be compared with their database: %s", error)

    def _activate(self, guard: ActiveGuard) -> None:
        if any(guard.name == known.name for known in self):
            raise SpecError(f"two guards have the name {guard.name!r}: give one Guard(name=...)")
        table = guard.declared.table
        self._by_table.setdefault((table.schema, table.name.lower()), []).append(guard)

    def _discover(self, table: Table) -> None:
        """A Table that was not in the metadata may declare guards of its own.

        They see their database on its next connection, or when they are built: this may be in the
        middle of a transaction, and a pool of one connection has no other.
        """
        self._seen.add(table)
        known = {guard.name for guard in self}
        fresh = [
            ActiveGuard(self._store, declared)
            for declared in declared_on(table)
            if declared.name not in known
        ]
        for guard in fresh:
            self._activate(guard)
        for forget in self.when_new if fresh else ():
            forget()


def _column(element: Any) -> Column[Any]:
    """The Column behind a mapped attribute or a Column."""
    found = element.__clause_element__() if hasattr(element, "__clause_element__") else element
    found = found._deannotate() if hasattr(found, "_deannotate") else found
    if not isinstance(found, Column):
        raise SpecError(f"expected a column or a mapped attribute, got {element!r}")
    return found
