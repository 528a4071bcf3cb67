"""A guard as the source of its own filter: the rows of its table, as canonical keys.

Unlike a plain table it knows which form its keys have and refuses another one, it waits for
statements in flight, and it writes the note that makes the guard valid. Fences that stood when the
rebuild began are behind what it reads, so they are lowered at the end.

A filter that was built for another form, database or store is replaced by an empty one first, which
is fenced until the rebuild has ended; any other goes on answering meanwhile.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
from typing import Any

from sqlalchemy import MetaData, text
from sqlalchemy.engine import Engine

from bloomstore import Store
from bloomstore.errors import FilterExists, FilterNotFound
from bloomstore.keys import Key
from bloomstore.rebuild.source import SourceError
from bloomstore.sql.build.build_lock import only_builder
from bloomstore.sql.build.table_source import TableSource, reflect
from bloomstore.sql.capture.autocommit_lock import Flight
from bloomstore.sql.databases.canonical import Unclear, stored_keys
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared, Guard, declared_in
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.live_table import Live, read_live
from bloomstore.sql.guards.record import Note
from bloomstore.sql.guards.trust import NOT_BUILT
from bloomstore.sql.outbox import catch_up
from bloomstore.sql.schema.incarnation import ensure_incarnation, leave_token, read_tokens
from bloomstore.sql.schema.registry import Unreadable, read_registry


class GuardSource(TableSource):
    """The table of one guard."""

    lowers_fences = True

    def __init__(
        self, store: Store, engine: Engine, declared: Declared, *, parallel: int = 1
    ) -> None:
        columns = [column.key for column in declared.columns]
        super().__init__(engine, declared.table, columns, parallel=parallel)
        self._store = store
        self._declared = declared
        self.declared = declared.guard.spec.initial_capacity
        self._live = self._read()
        self._canon = key_form.joined(key_form.canons_of(declared, self._live))

    @property
    def name(self) -> str:
        """Of the guard and its filter."""
        return self._declared.name

    @property
    def form(self) -> dict[str, Any]:
        """What the keys depend on."""
        return key_form.form_of(self._declared, self._live)

    def identity(self) -> dict[str, Any]:
        """The database, the table, and the form of the keys as it is now."""
        self._live = self._read()
        begun = self._begun  # a restored database does not know of this rebuild
        with self._errors(), self.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            token = read_tokens(raw, [begun])[begun]
        found = {"form": self.form, "epoch": self._live.epoch, "begun": token}
        return super().identity() | found

    def proof(self) -> dict[str, Any]:
        """The token that its beginning has left in the database is in the identity."""
        return {}

    @property
    def _begun(self) -> str:
        return f"{self.name}/rebuild"

    def _read(self) -> Live:
        """The live table; a doubt ends everything."""
        with self._errors(), self.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            (live,) = read_live(raw, self.engine.dialect, [self._declared])
        if doubt := key_form.doubt_of(self._declared, live):
            raise SourceError(f"guard {self.name} cannot be rebuilt: {doubt}")
        return live

    def _why_another(self, raw: Any) -> str:
        return key_form.why_another(self._declared, self.engine.dialect, raw, self.form)

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Builds of one store take turns."""
        return only_builder(self._store.path)

    def begin(self) -> None:
        """Makes sure that there is a filter of this form, and that writers know the form."""
        super().begin()
        with self._errors():
            ensure_incarnation(self.engine)
            leave_token(self.engine, self._begun)
        self._live = self._read()
        note, fresh = self._note(), self._fresh_note()
        is_another = note.form and (
            note.place != fresh.place
            or note.form != self.form
            or note.database != self._live.identity
            or note.store != self._store.incarnation
            or note.filter_number != self._store[self.name].number
            or bool(note.feed) is (self._declared.guard.feed != "outbox")
        )
        if is_another:
            spec, durability = self._store[self.name].spec, self._store[self.name].durability
            with contextlib.suppress(FilterNotFound):
                self._store.drop(self.name)
            note = fresh
            self._write(note)
            with contextlib.suppress(FilterExists):  # another process has missed it already
                self._store.create(self.name, spec, durability=durability, fence=NOT_BUILT)
        note.building = self.form
        if self._declared.guard.feed == "outbox":
            # Keys that come from now on are read from the outbox. What was committed before is
            # seen by the scan, and whoever could see older rows is waited for before the switch.
            with self._errors(), self.engine.connect() as connection:
                note.feed_building = catch_up.begin(connection)
            with self._errors():
                catch_up.seal(self.engine, self.name)
        self._write(note)

    def prepare(self, patience: float) -> None:
        """Statements under AUTOCOMMIT land, then transactions end."""
        try:
            Flight(self._store.path).wait(patience)
        except StillOpen as error:
            raise SourceError(f"guard {self.name}: {error} after {patience:g} s") from None
        super().prepare(patience)

    def settle(self, patience: float) -> None:
        """As for a table; and leaves the token of the build.

        Not after the switch: when this process dies right behind it, the database may be restored
        from a time before. The commit also brings what was read to the server's disk.
        """
        super().settle(patience)
        note = self._note()
        with self._errors():
            note.token = leave_token(self.engine, self.name)
        self._write(note)

    def finish(self, rows: int) -> None:
        """The note says what the filter holds from now on."""
        note = self._fresh_note()
        note.form, note.database, note.store = (
            self.form,
            self._live.identity,
            self._store.incarnation,
        )
        note.token, note.filter_number = self._note().token, self._store[self.name].number
        note.rows, note.epoch, note.feed = rows, self._live.epoch, self._note().feed_building
        self._write(note)

    @property
    def is_fed(self) -> bool:  # type: ignore[override]
        """Whether an outbox has what the filter does not have yet."""
        return self._declared.guard.feed == "outbox"

    def coming(self) -> abc.Set[Key]:
        """The keys of the outbox, on PostgreSQL from the filter's position on."""
        guard = ActiveGuard(self._store, self._declared)
        feed = catch_up.Feed(guard)
        if not guard.has_outbox or (base := feed.base()) is None:
            return frozenset()
        query = f"SELECT {', '.join(feed.keys)} FROM {feed.outbox(self.engine.dialect)}"  # noqa: S608
        if self._database.TRAITS.has_transaction_ids:
            query += f" WHERE xid >= {feed.position(base)}"
        with self._errors(), self.engine.connect() as connection:
            rows = connection.execute(text(query)).all()
        is_one = len(self._declared.columns) == 1
        return set(self._keys([row[0] if is_one else tuple(row) for row in rows]))

    def _keys(self, part: list[Any]) -> list[Key]:
        try:
            return stored_keys(self._canon, part)
        except Unclear as why:
            raise SourceError(f"guard {self.name}: {why}") from None

    def _note(self) -> Note:
        found = self._store.notes.get(f"guard/{self.name}")
        return self._fresh_note() if found is None else Note.unpack(found)

    def _fresh_note(self) -> Note:
        table = self._declared.table
        return Note(table.name, table.schema, [column.name for column in self._declared.columns])

    def _write(self, note: Note) -> None:
        self._store.notes[f"guard/{self.name}"] = note.pack()


def guard_source(
    store: Store,
    engine: Engine,
    name: str,
    metadata: MetaData | None = None,
    *,
    parallel: int = 1,
) -> GuardSource:
    """The source of a guard by its name: as the models declare it, else as its note remembers it.

    Without the models the types are those of the database. Where they lead to another form than
    the one that the filter was built with, the models are needed.
    """
    if metadata is not None:
        for declared in declared_in(metadata):
            if declared.name == name:
                return GuardSource(store, engine, declared, parallel=parallel)
        names = ", ".join(sorted(each.name for each in declared_in(metadata)))
        raise SourceError(f"the models declare no guard {name!r}, only {names or 'none'}")
    return _remembered(store, engine, name, parallel)


def is_guard(store: Store, name: str) -> bool:
    """Whether a guard of this name was declared with this store."""
    return f"guard/{name}" in store.notes


def _has_outbox(engine: Engine, name: str) -> bool:
    with engine.connect() as connection:
        try:
            entry = read_registry(connection.connection.dbapi_connection).get(name)
        except Unreadable as error:
            raise SourceError(f"guard {name}: {error}") from None
    return entry is not None and entry.outbox is not None


def _remembered(store: Store, engine: Engine, name: str, parallel: int) -> GuardSource:
    found = store.notes.get(f"guard/{name}")
    if found is None:
        raise SourceError(
            f"no guard {name!r} was ever built with this store: name a table, or the models"
        )
    note = Note.unpack(found)
    table = reflect(engine, note.table, note.schema)
    missing = [column for column in note.columns if column not in table.columns]
    if missing:
        raise SourceError(f"guard {name}: {table.fullname} has no column {missing[0]!r} any more")
    columns = tuple(table.columns[column] for column in note.columns)
    guard = Guard(name=name, feed="outbox" if note.feed or _has_outbox(engine, name) else "capture")
    try:
        source = GuardSource(store, engine, Declared(guard, table, columns), parallel=parallel)
    except SourceError as error:  # a UUID type or a vouched trigger would be in the models
        raise SourceError(f"{error}; the models must say what is declared, if more is") from None
    facts = [source._live.table.columns[column.name.lower()] for column in columns]
    remembered = note.form or note.building
    may_be_uuids = not remembered and any(map(key_form.is_text, facts))
    if may_be_uuids or (remembered and remembered["canon"] != source.form["canon"]):
        was = remembered.get("canon", "nothing yet")
        raise SourceError(
            f"guard {name}: its keys are {was}, those of the table's own types are"
            f" {source.form['canon']}: the models must say what is declared"
        )
    return source
