"""The guards of one plugin: finds those of a table, and compares all with the live database.

This program may lack some guards of the store, as an older release, a script or a reflected table
does, and still write to their tables. It knows them by their records. It cannot make their keys, so
it fences their filters.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Column, MetaData, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import TableClause
from sqlalchemy.types import NullType

from bloomstore import Filter, Store
from bloomstore.catalog.reasons import Reason
from bloomstore.errors import BloomStoreError, FilterNotFound, SpecError
from bloomstore.sql.databases import database_of
from bloomstore.sql.guards.connection_settings import Settings
from bloomstore.sql.guards.contract import KeyFeed
from bloomstore.sql.guards.declaration import Declared, Guard, declared_on
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.live_table import Live, read_live
from bloomstore.sql.guards.record import Record, read_record
from bloomstore.sql.schema.incarnation import read_again
from bloomstore.sql.sqlalchemy_private import plain_column
from bloomstore.store.note_names import guards_among

log = logging.getLogger("bloomstore.sql")

_WORD = re.compile(r"\w+")


class Guards:
    """The guards that a MetaData declares, and those of Table objects that are met later."""

    def __init__(
        self,
        store: Store,
        metadata: MetaData | None,
        make_feed: Callable[[ActiveGuard], KeyFeed] | None = None,
    ) -> None:
        self.store = store
        self._make_feed = make_feed  # for guards with an outbox
        self.settings = Settings()  # of connections, as they were when guards met them
        self._by_table: dict[tuple[str | None, str], list[ActiveGuard]] = {}
        self._seen: set[Table] = set()
        self._default_schema: str | None = None
        self._path: set[str] = set()  # schemas where names without one are looked for
        self.when_new: list[Callable[[], None]] = []  # a new guard changes what plans say
        self._undeclared: dict[str, Undeclared] = {}
        self._generation = -1
        self._version = 0
        self._refreshing = threading.Lock()
        if metadata is not None:
            self.declare(metadata)
        self.refresh()

    def __iter__(self) -> Iterator[ActiveGuard]:
        for guards in list(self._by_table.values()):
            yield from guards

    def everything(self) -> Iterator[ActiveGuard]:
        """All guards, including those that only other programs declare."""
        yield from self
        yield from list(self._undeclared.values())

    def declare(self, metadata: MetaData) -> None:
        """Adds the guards of these tables."""
        for table in metadata.tables.values():
            if table not in self._seen:
                self._seen.add(table)
                for declared in declared_on(table):
                    self._activate(ActiveGuard(self.store, declared, self._make_feed))
        self._changed()

    def refresh(self) -> int:
        """Finds guards that another process has declared: this one must fence them from now on.

        Returns how often new guards came, from this process or another. Rows written before they
        were declared are read by the build that makes them valid: it waits for transactions that
        were open then.
        """
        try:
            generation = self.store.generation
        except BloomStoreError:
            return self._version  # a closed store guards nothing
        if generation != self._generation:
            with self._refreshing:
                self._read_records()
                self._generation = (
                    generation  # assigned last: a thread that reads it must see its guards too
                )
        return self._version

    def _read_records(self) -> None:
        notes = self.store.notes
        declared = {guard.name: guard.fresh_record().guarded for guard in self}
        is_new = False
        for name in list(guards_among(notes)):
            with contextlib.suppress(BloomStoreError, KeyError):  # dropped since, or damaged
                if name not in self.store:
                    continue
                record, other = read_record(self.store, name), self._undeclared.get(name)
                if record is None:
                    continue
                if declared.get(name) == record.guarded or record.feed:  # an outbox has its keys
                    self._undeclared.pop(name, None)
                elif other is None or other.fresh_record().guarded != record.guarded:
                    # Perhaps this program has another guard of the same name.
                    self._undeclared[name] = Undeclared(self.store, name, record)
                    is_new = True
        if is_new:
            self._changed()

    def of(self, table: Any) -> list[ActiveGuard]:
        """The guards of the table that this Table object names exactly."""
        if not isinstance(table, Table):
            return []
        return [
            guard
            for guard in self.written(table)
            if guard.declared.table.name == table.name
            and _is_verbatim(guard.declared.table) is _is_verbatim(table)
            and not isinstance(guard, Undeclared)
            and self._is_one(guard.declared.table.schema, table.schema)
        ]

    def _is_one(self, declared: str | None, asked: str | None) -> bool:
        """Whether both certainly name one schema."""
        default = self._default_schema
        return declared == asked or (default is not None and {declared, asked} == {None, default})

    def written(
        self, table: Any, translated: Mapping[Any, Any] | None = None, anywhere: bool = False
    ) -> list[ActiveGuard]:
        """The guards of every table that this Table object may stand for: spare keys do no harm.

        `anywhere`: names may lead to any schema on this connection.
        """
        if not isinstance(table, TableClause):  # a Table, or a name from sqlalchemy.table()
            return []
        if isinstance(table, Table) and table not in self._seen:
            self._discover(table)
        schemas = (table.schema, (translated or {}).get(table.schema, table.schema))
        if _is_verbatim(table) or getattr(schemas[1], "quote", None) is False:
            words = _words(table.name)
            return [each for each in self.everything() if _words(each.declared.table.name) <= words]
        names = set(map(_folded, schemas))
        path = set(map(_folded, self._path))
        if None in names or names & path:
            names |= {None, *path}
        if anywhere:
            names = {schema for schema, _ in list(self._by_table)}
        guards = [
            guard
            for schema in names
            for guard in self._by_table.get((schema, table.name.lower()), ())
        ]
        others = list(self._undeclared.values())
        return guards + [
            guard for guard in others if guard.declared.table.name.lower() == table.name.lower()
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
        if self._default_schema is not None and self._default_schema not in self._path:
            self._path.add(self._default_schema)
            self._changed()
        met = 0
        try:
            before = [guard.record().token for guard in guards]
            found = read_live(raw, dialect, [guard.declared for guard in guards])
            path = {name for live in found for name in live.table.path}
            if not path <= self._path:
                self._path |= path
                self._changed()
            self.settings.learn(dialect, raw, {_place(guard.declared.table) for guard in guards})
            for guard, live, token in zip(guards, found, before, strict=True):
                guard.meet(live, token)
                met += 1
        except BloomStoreError as error:  # a closed store must not break the application
            log.warning(
                "guards could not be compared with their database, and answer UNKNOWN: %s", error
            )
            for guard in guards[met:]:
                guard.forget_database()  # it may have changed

    def forget_databases(self) -> None:
        """Called when the plugin listens to no engine: writes the counts, then doubts every guard.

        Counts are for people, so an error of the store, which may be closed, is no error here.
        """
        with contextlib.suppress(BloomStoreError):
            for guard in self:
                guard.note_deleted()
                if guard.feed is not None:
                    guard.feed.note_position()
        for guard in self:
            guard.forget_database()

    def compare(self, dialect: Dialect, raw: Any, *, is_inside: bool) -> str:
        """Looks once more which database this is; why it is another one, or "".

        Inside an open transaction a difference says nothing to other sessions: its snapshot
        may be older than a build. Raises what the driver does.
        """
        guards = list(self)
        before = [guard.record().token for guard in guards]
        identity, tokens = read_again(database_of(dialect), raw, [each.name for each in guards])
        for guard, token in zip(guards, before, strict=True):
            if (seen := guard.lives.get(id(dialect))) is None:
                continue
            live = replace(seen, identity=identity, token=tokens[guard.name])
            is_same = live == seen and live.token in (token, guard.record().token)
            if is_inside and not is_same:
                return "the transaction is older than the last build, or the database was restored"
            guard.meet(live, token)
        return ""

    def _activate(self, guard: ActiveGuard) -> None:
        if any(guard.name == known.name for known in self):
            raise SpecError(f"two guards have the name {guard.name!r}: give one Guard(name=...)")
        table = guard.declared.table
        place = _folded(table.schema), table.name.lower()
        self._by_table.setdefault(place, []).append(guard)
        other = self._undeclared.get(guard.name)
        if other is not None and other.fresh_record().guarded == guard.fresh_record().guarded:
            del self._undeclared[guard.name]

    def _discover(self, table: Table) -> None:
        """A Table that was not in the metadata may declare guards of its own.

        They see their database on its next connection, or when they are built: this may be in the
        middle of a transaction, and a pool of one connection has no other.
        """
        with self._refreshing, self.store.apart():
            if table in self._seen:  # another thread was faster
                return
            names = {guard.name for guard in self}
            fresh = [
                ActiveGuard(self.store, declared, self._make_feed)
                for declared in declared_on(table)
                if declared.name not in names
            ]
            for guard in fresh:
                self._activate(guard)
            self._seen.add(table)
        if fresh:
            self._changed()

    def _changed(self) -> None:
        """Discards all plans, so that statements that were planned before are planned again."""
        for forget in self.when_new:
            forget()
        self._version += 1  # assigned last: a thread that reads it must not see an old plan


def _place(table: Table) -> tuple[str | None, str]:
    return table.schema, table.name


def _folded(schema: str | None) -> str | None:
    """The name in lower case: some databases ignore the case of schema names."""
    return None if schema is None else schema.lower()


def _is_verbatim(table: TableClause) -> bool:
    """Whether its name is rendered as it is: with dots and quotes in it, or without any quotes."""
    return any(getattr(each, "quote", None) is False for each in (table.schema, table.name))


def _words(name: str) -> set[str]:
    return {word.upper() for word in _WORD.findall(name)}


class Undeclared(ActiveGuard):
    """A guard that only other programs declare: it answers nothing here and can only be fenced."""

    def __init__(self, store: Store, name: str, record: Record) -> None:
        columns: list[Column[Any]] = [Column(column, NullType()) for column in record.columns]
        table = Table(record.table, MetaData(), *columns, schema=record.schema)
        super().__init__(store, Declared(Guard(name=name), table, tuple(columns)))
        self.doubt = "this program does not declare it"

    def meet(self, live: Live, token_before: str = "") -> None:
        """Does nothing: no live database makes its keys known."""

    def fence(self, reason: str | Reason) -> None:
        """Fences the filter, if it still exists."""
        with contextlib.suppress(FilterNotFound):
            super().fence(reason)

    def _open(self) -> Filter:
        return self.store[self.name]


def _column(element: Any) -> Column[Any]:
    """The Column behind a mapped attribute or a Column."""
    column = element.__clause_element__() if hasattr(element, "__clause_element__") else element
    column = plain_column(column)
    if not isinstance(column, Column):
        raise SpecError(f"expected a column or a mapped attribute, got {element!r}")
    return column
