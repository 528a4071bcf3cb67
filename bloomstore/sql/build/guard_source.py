"""A guard as the source of its own filter: the rows of its table, as canonical keys.

Unlike a plain table, a guard knows which form its keys have and refuses another one, it waits for
statements under AUTOCOMMIT, and it writes the record that makes it valid (ceremony.py). The rows
behind fences that stood when the rebuild began are read, so these fences are lowered at the end.

A filter that was built for another form, database or store is replaced by an empty one first, which
is fenced until the rebuild has ended; any other filter keeps answering.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
from typing import Any

from sqlalchemy import MetaData, text
from sqlalchemy.engine import Engine

from bloomstore import Store
from bloomstore.errors import FilterExists, FilterNotFound, SourceError
from bloomstore.keys import Key
from bloomstore.sql.build.ceremony import Ceremony
from bloomstore.sql.build.table_source import TableSource, reflect
from bloomstore.sql.databases.canonical import Unclear, stored_keys
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared, Guard, declared_in
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.live_table import Live, read_live
from bloomstore.sql.guards.record import read_record
from bloomstore.sql.guards.trust import NOT_BUILT
from bloomstore.sql.outbox.catch_up import Feed
from bloomstore.sql.outbox.position import new_snapshot
from bloomstore.sql.schema.incarnation import ensure_incarnation, leave_token, read_tokens
from bloomstore.sql.schema.registry import Unreadable, read_registry


class GuardSource(TableSource):
    """The table of one guard. `live` is the table if the caller has just read it."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        declared: Declared,
        *,
        parallel: int = 1,
        live: Live | None = None,
    ) -> None:
        columns = [column.key for column in declared.columns]
        super().__init__(engine, declared.table, columns, parallel=parallel)
        self._store = store
        self._declared = declared
        self.declared = declared.guard.spec.initial_capacity
        live = self._read() if live is None else live
        self._just_read: Live | None = live
        self._ceremony = Ceremony(store, engine, declared, live)
        self.owner = GuardOwner(self._ceremony)
        self._canon = key_form.joined(key_form.canons_of(declared, live))

    @property
    def name(self) -> str:
        """The name of the guard and its filter."""
        return self._declared.name

    @property
    def form(self) -> dict[str, Any]:
        """The form of the keys: type, collation and everything else that they depend on."""
        return self._ceremony.form

    def identity(self) -> dict[str, Any]:
        """The database, the table, and the form of the keys as it is now."""
        self._ceremony.live, self._just_read = self._just_read or self._read(), None
        begun = self._begun  # a restored database does not know of this rebuild
        with self._errors(), self.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            token = read_tokens(raw, [begun])[begun]
        facts = {"form": self.form, "epoch": self._ceremony.live.epoch, "begun": token}
        return super().identity() | facts

    def proof(self) -> dict[str, Any]:
        """Nothing: the identity holds the token that the rebuild left when it began."""
        return {}

    @property
    def _begun(self) -> str:
        """The name of the token of a rebuild in progress."""
        return f"{self.name}/rebuild"

    def _read(self) -> Live:
        """The live table. Raises SourceError if it is in doubt."""
        with self._errors(), self.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            (live,) = read_live(raw, self.engine.dialect, [self._declared])
        if doubt := key_form.doubt_of(self._declared, live):
            raise SourceError(f"guard {self.name} cannot be rebuilt: {doubt}")
        return live

    def _why_another(self, raw: Any) -> str:
        return self._ceremony.why_another(raw)

    def begin(self) -> None:
        """Makes sure that there is a filter of this form, and that writers know the form."""
        ceremony = self._ceremony
        with self._errors():
            ceremony.require_source()
            ensure_incarnation(self.engine)
            leave_token(self.engine, self._begun)
        ceremony.live = self._just_read = self._read()  # the incarnation may be new
        if ceremony.is_another_filter():
            self._replace_filter()
        snapshot: dict[str, Any] = {}
        if ceremony.has_outbox:
            # Keys that come from now on are read from the outbox. Rows that were committed before
            # are seen by the scan, and transactions that see older rows end before the switch.
            with self._errors(), self.engine.connect() as connection:
                snapshot = new_snapshot(connection)
        with self._errors():
            ceremony.flush_commits()
        ceremony.announce(snapshot)

    def _replace_filter(self) -> None:
        spec, durability = self._store[self.name].spec, self._store[self.name].durability
        with contextlib.suppress(FilterNotFound):
            self._store.drop(self.name)
        self._ceremony.write(self._ceremony.fresh_record())
        with contextlib.suppress(FilterExists):  # another process has just created it
            self._store.create(self.name, spec, durability=durability, fence=NOT_BUILT)

    def prepare(self, patience: float) -> None:
        """Waits for statements under AUTOCOMMIT, then for open transactions."""
        self._wait(self._ceremony.wait_for_writers, patience)

    def settle(self, patience: float) -> None:
        """Waits for readers as for a table, and leaves the token of the build.

        Not after the switch: if this process dies right after it, the database may be restored
        from an earlier time. The commit also flushes to the server's disk what was read.
        """
        super().settle(patience)
        record = self._ceremony.record()
        with self._errors():
            record.token = self._ceremony.leave_token()
        self._ceremony.write(record)

    @property
    def is_fed(self) -> bool:  # type: ignore[override]
        """Whether an outbox has keys that the filter does not have yet."""
        return self._ceremony.has_outbox

    def coming(self) -> abc.Set[Key]:
        """The keys of the outbox, on PostgreSQL from the filter's position on."""
        guard = ActiveGuard(self._store, self._declared)
        feed = Feed(guard)
        if not guard.has_outbox or (snapshot := feed.position.snapshot()) is None:
            return frozenset()
        query = f"SELECT {', '.join(feed.keys)} FROM {feed.outbox(self.engine.dialect)}"  # noqa: S608
        if self._database.TRAITS.has_transaction_ids:
            query += f" WHERE xid >= {feed.position.of(snapshot)}"
        with self._errors(), self.engine.connect() as connection:
            rows = connection.execute(text(query)).all()
        is_one = len(self._declared.columns) == 1
        return set(self._keys([row[0] if is_one else tuple(row) for row in rows]))

    def _keys(self, part: list[Any]) -> list[Key]:
        try:
            return stored_keys(self._canon, part)
        except Unclear as why:
            raise SourceError(f"guard {self.name}: {why}") from None


class GuardOwner:
    """The guard as the owner of its filter, see rebuild/source.py."""

    def __init__(self, ceremony: Ceremony) -> None:
        self._ceremony = ceremony

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Holds the build lock, so that builds of one store take turns."""
        return self._ceremony.held()

    def finish(self, rows: int) -> None:
        """Writes the record of the keys that the filter holds from now on."""
        record = self._ceremony.record()
        self._ceremony.complete(rows, record.token, record.feed_building)


def guard_source(
    store: Store,
    engine: Engine,
    name: str,
    metadata: MetaData | None = None,
    *,
    parallel: int = 1,
) -> GuardSource:
    """The source of a guard by its name: as the models declare it, else as its record remembers it.

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


def _has_outbox(engine: Engine, name: str) -> bool:
    with engine.connect() as connection:
        try:
            entry = read_registry(connection.connection.dbapi_connection).get(name)
        except Unreadable as error:
            raise SourceError(f"guard {name}: {error}") from None
    return entry is not None and entry.outbox is not None


def _remembered(store: Store, engine: Engine, name: str, parallel: int) -> GuardSource:
    record = read_record(store, name)
    if record is None:
        raise SourceError(
            f"no guard {name!r} was ever built with this store: name a table, or the models"
        )
    table = reflect(engine, record.table, record.schema)
    missing = [column for column in record.columns if column not in table.columns]
    if missing:
        raise SourceError(f"guard {name}: {table.fullname} has no column {missing[0]!r} any more")
    columns = tuple(table.columns[column] for column in record.columns)
    guard = Guard(
        name=name, feed="outbox" if record.feed or _has_outbox(engine, name) else "capture"
    )
    try:
        source = GuardSource(store, engine, Declared(guard, table, columns), parallel=parallel)
    except SourceError as error:  # a UUID type or a vouched trigger would be in the models
        raise SourceError(
            f"{error}; pass --models MODULE:NAME (or metadata=) if the column is declared with a"
            " type or option that the database does not show (Uuid, ignore_triggers)"
        ) from None
    facts = [source._ceremony.live.table.columns[column.name.lower()] for column in columns]
    remembered = record.form or record.building
    may_be_uuids = not remembered and any(map(key_form.is_text, facts))
    if may_be_uuids or (remembered and remembered["canon"] != source.form["canon"]):
        was = remembered.get("canon", "nothing yet")
        raise SourceError(
            f"guard {name}: its keys are {was}, those of the table's own types are"
            f" {source.form['canon']}: pass --models MODULE:NAME (or metadata=)"
        )
    return source
