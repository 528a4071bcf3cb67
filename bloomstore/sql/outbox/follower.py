"""The follower: takes keys out of outboxes and into the filters of a store on this host.

    Follower(engine, store).run_once()      # one pass over every guard that has an outbox

    PostgreSQL    askers need no follower to be exact; it keeps what they must read short, purges
                  the outbox and lets guards with a staleness answer without a transaction.
                  Any number of stores may follow: each has its own position, and keys stay for
                  `keep` transactions. A purge raises the floor in the same transaction.
    elsewhere     one store takes the keys, and deletes exactly the rows whose keys are durable in
                  its filter, by their ids. Rows get their ids before they are committed, so
                  nothing can be said of a range of ids. A deletion is a transaction that first
                  locks the guard's row in the registry and finds the same follower and epoch in
                  it: a follower that slept while its outbox was recreated, or taken over by
                  another store, deletes nothing.

A store takes over an outbox before it builds the guard: the take-over raises the epoch, so every
earlier filter, including its own, is invalid until it is built.

A pass that has read its outbox to the end is recorded with the moment it began: everything
that was committed before is in the filter. Only processes of this host compare that moment, by a
clock that all of them share and that cannot be set.

A guard that is not built, or in doubt, is left alone: its outbox keeps the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, Table, Uuid, text
from sqlalchemy.types import NullType

from bloomstore import Store
from bloomstore.catalog.reasons import ReasonCode
from bloomstore.errors import DatabaseError, SpecError
from bloomstore.sql.databases import database_of, traits_of
from bloomstore.sql.databases.snapshot_sql import XMIN
from bloomstore.sql.guards.declaration import Declared, Guard
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.live_table import read_live
from bloomstore.sql.guards.record import read_record
from bloomstore.sql.outbox.catch_up import Feed
from bloomstore.sql.outbox.position import BuildSnapshot, clock, flush_commits
from bloomstore.sql.schema.incarnation import read_identity
from bloomstore.sql.schema.registry import TABLE as REGISTRY
from bloomstore.sql.schema.registry import Entry, Unreadable, read_registry

KEEP = 1_000_000  # transactions whose keys stay for other stores
CHUNK = 5_000
MOVED = "its outbox was recreated or taken over during the pass: build the guard"


@dataclass(frozen=True, slots=True)
class Pass:
    """The outcome of one pass for one guard."""

    name: str
    keys: int = 0
    purged: int = 0
    doubt: str = ""  # why nothing was done


class Follower:
    """Follows every outbox of a database whose filter is in the store."""

    def __init__(
        self, engine: Engine, store: Store, *, keep: int = KEEP, takes_over: bool = False
    ) -> None:
        if keep < 0:
            raise SpecError(f"keep is a number of transactions, got {keep}")
        self._engine = engine
        self._store = store
        self._keep = keep
        self._takes_over = takes_over

    def run_once(self) -> list[Pass]:
        """One pass over every guard with an outbox."""
        database = database_of(self._engine.dialect)
        if self._takes_over:
            self._take_over()
        with self._engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            identity = read_identity(database, raw)
            try:
                entries = read_registry(raw)
            except Unreadable as error:
                raise DatabaseError(str(error)) from error
            return [
                self._follow(connection, entry, identity)
                for entry in entries.values()
                if entry.outbox is not None
            ]

    def _follow(self, connection: Connection, entry: Entry, identity: dict[str, str]) -> Pass:
        guard = self._guard_of(entry)
        if guard is None:
            return Pass(entry.name, doubt=f"it is not built in {self._store.path}")
        raw: Any = connection.connection.dbapi_connection
        (live,) = read_live(raw, connection.dialect, [guard.declared])
        live.token = None  # of the last build in any store: each has a position of its own
        guard.meet(live)
        feed = Feed(guard)
        snapshot = feed.position.snapshot()
        doubt = guard.why_unknown()
        is_behind = not guard.doubt and guard.filter.fences_for(ReasonCode.BEHIND)
        if snapshot is None or (doubt and not is_behind):
            return Pass(entry.name, doubt=doubt)
        if traits_of(connection.dialect).has_transaction_ids:
            return self._catch_up(connection, guard, feed, snapshot)
        return self._take(guard, feed, entry.epoch)

    def _guard_of(self, entry: Entry) -> ActiveGuard | None:
        """The guard as its record declares it; None if it was never built in this store."""
        record = read_record(self._store, entry.name)
        if record is None or not record.form or entry.name not in self._store:
            return None
        table = Table(entry.table, MetaData(), schema=entry.schema)
        # Only the application knows whether text is UUIDs, of which every spelling is one key.
        kinds = [Uuid() if each == "uuid/1" else NullType() for each in _canons(record.form)]
        for name, kind in zip(entry.columns, kinds, strict=True):
            table.append_column(Column(name, kind))
        declared = Declared(
            # This guard answers no lookup, so other ways for rows to come in do not matter.
            Guard(feed="outbox", name=entry.name, ignore_triggers=True),
            table,
            tuple(table.columns.values()),
        )
        return ActiveGuard(self._store, declared)

    # PostgreSQL --------------------------------------------------------------------

    def _catch_up(
        self, connection: Connection, guard: ActiveGuard, feed: Feed, snapshot: BuildSnapshot
    ) -> Pass:
        position = feed.position.of(snapshot)
        outbox = feed.outbox(connection.dialect)
        tokens = guard.filter.fences_for(ReasonCode.BEHIND)
        began = clock()
        connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            asked = {"guard": guard.name}
            query = f"SELECT {XMIN}, epoch, floor FROM {REGISTRY.name} WHERE name = :guard"  # noqa: S608
            xmin, epoch, floor = connection.execute(text(query), asked).one()
            if epoch > snapshot.epoch or floor is None or position < floor:
                return Pass(guard.name, doubt="it must be built: keys are gone, or it is invalid")
            query = f"SELECT xid, {', '.join(feed.keys)} FROM {outbox} WHERE xid >= :position"  # noqa: S608
            rows = connection.execution_options(yield_per=CHUNK).execute(
                text(query), {"position": position}
            )
            keys = ended = 0
            for part in rows.partitions(CHUNK):
                if why := feed.apply(row[1:] for row in part):
                    return Pass(guard.name, keys, doubt=why)
                keys += len(part)
                ended = max([ended, *(row[0] for row in part if row[0] < xmin)])
        if ended >= position:
            flush_commits(self._engine, guard.name)
            feed.position.advance(snapshot, ended + 1, keys)
            feed.position.write()
        feed.position.passed(began)
        if tokens:
            guard.filter.unfence(*tokens)
        # In this order: builds that begin after a line have a later snapshot than it has seen, and
        # of those that have ended before it the snapshot is another one.
        limit = feed.position.of(snapshot) - self._keep
        if (start := feed.position.of_rebuild()) is not None:
            limit = min(limit, start)
        if feed.position.snapshot() != snapshot or guard.why_unknown():
            return Pass(guard.name, keys)
        return Pass(guard.name, keys, self._purge(guard.name, outbox, epoch, limit))

    def _purge(self, name: str, outbox: str, epoch: int, limit: int) -> int:
        """Deletes keys of transactions below a limit, all of which have ended."""
        with self._engine.begin() as connection:
            raised = connection.execute(
                text(
                    f"UPDATE {REGISTRY.name} SET floor = :limit"  # noqa: S608
                    " WHERE name = :guard AND epoch = :epoch AND floor < :limit"
                ),
                {"limit": limit, "guard": name, "epoch": epoch},
            )
            if not raised.rowcount:
                return 0
            purge = f"DELETE FROM {outbox} WHERE xid < :limit"  # noqa: S608
            return connection.execute(text(purge), {"limit": limit}).rowcount

    # Elsewhere ---------------------------------------------------------------------

    def _take(self, guard: ActiveGuard, feed: Feed, epoch: int) -> Pass:
        outbox = feed.outbox(self._engine.dialect)
        if not self._claim(guard.name):
            return Pass(
                guard.name,
                doubt="another store follows this outbox, and only one may: see --take-over",
            )
        query = f"SELECT id, {', '.join(feed.keys)} FROM {outbox} ORDER BY id LIMIT {CHUNK}"  # noqa: S608
        keys = 0
        while True:
            began = clock()
            with self._engine.connect() as reading:
                rows = reading.execute(text(query)).all()
            if why := feed.apply(row[1:] for row in rows):
                return Pass(guard.name, keys, doubt=why)
            if not self._delete(guard.name, epoch, outbox, [int(row[0]) for row in rows]):
                return Pass(guard.name, keys, doubt=MOVED)
            keys += len(rows)
            if len(rows) < CHUNK:  # the end, as of the moment when this read began
                feed.position.passed(began)
                return Pass(guard.name, keys, keys)

    def _delete(self, guard: str, epoch: int, outbox: str, ids: list[int]) -> bool:
        """Deletes rows that were read from the outbox of this epoch; False if it is another now."""
        known = {"guard": guard, "store": self._store.incarnation, "epoch": epoch}
        where = "WHERE name = :guard AND follower = :store AND epoch = :epoch"
        if not ids:
            query = f"SELECT count(*) FROM {REGISTRY.name} {where}"  # noqa: S608
            with self._engine.connect() as connection:
                return bool(connection.execute(text(query), known).scalar())
        with self._engine.begin() as connection:
            # An update that changes nothing: it locks the row, or SQLite's file, until the end.
            lock = f"UPDATE {REGISTRY.name} SET epoch = epoch {where}"  # noqa: S608
            if not connection.execute(text(lock), known).rowcount:
                return False
            chosen = ", ".join(map(str, ids))
            connection.exec_driver_sql(f"DELETE FROM {outbox} WHERE id IN ({chosen})")  # noqa: S608
        return True

    def _claim(self, name: str) -> bool:
        """Whether this store takes the keys; the first store to ask does."""
        own = {"store": self._store.incarnation, "guard": name}
        claim = f"UPDATE {REGISTRY.name} SET follower = :store"  # noqa: S608
        with self._engine.begin() as connection:
            connection.execute(text(f"{claim} WHERE name = :guard AND follower IS NULL"), own)
            query = f"SELECT follower FROM {REGISTRY.name} WHERE name = :guard"  # noqa: S608
            return connection.execute(text(query), own).scalar() == self._store.incarnation

    def _take_over(self) -> None:
        """Claims every outbox, once, whether its guard is built here or not.

        This store has not read the keys that another one has deleted, so the epoch of an outbox
        that had a follower is raised: its guard must be built after this.
        """
        self._takes_over = False  # once: two stores that took turns would never be valid
        if traits_of(self._engine.dialect).has_transaction_ids:
            return
        claim = (
            f"UPDATE {REGISTRY.name}"  # noqa: S608
            " SET epoch = CASE WHEN follower IS NULL THEN epoch ELSE epoch + 1 END,"
            " follower = :store"
            " WHERE outbox IS NOT NULL AND (follower IS NULL OR follower <> :store)"
        )
        with self._engine.begin() as connection:
            connection.execute(text(claim), {"store": self._store.incarnation})


def _canons(form: dict[str, Any]) -> list[str]:
    """The canonical form of each column."""
    found = str(form["canon"])
    return found[1:-1].split(", ") if found.startswith("(") else [found]
