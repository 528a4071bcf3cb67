"""The feed of a guard: keys that reach its filter through an outbox, whoever wrote the rows.

A guard with a feed believes in no capture: triggers write each new key to the outbox in the
writer's own transaction (outbox_tables.py). What is in the outbox and not yet in the filter is read

    PostgreSQL    by the asker, in its own transaction, before its first answer: `catch_up`
    elsewhere     by a follower (follower.py); answers are as old as its last pass, so they are
    given
                  only to those who allow a staleness

The position of a filter is a transaction id: every key of a committed transaction below it is in
the filter. A catch-up reads the keys at and above the position together with xmin of the very
snapshot that it reads with: what is below xmin has ended, so nothing can appear there any more.
The position moves behind the last transaction below xmin that has keys.

A server that crashes gives ids out again that have not reached its disk: those of asynchronous
commits, and of transactions that were rolled back. So a position moves only up to an id that is on
the disk: one whose WAL was flushed, as the same server process says now or at its next catch-up.

Invariants
  1. A position is moved only after the keys below it are durable in the filter, and the ids below
     it on the server's disk.
  2. One catch-up is worth nothing to another transaction: that one may see more. It is worth
     nothing after a write of the own transaction either: triggers may have changed the key.
  3. Under REPEATABLE READ a transaction that is older than the build may see rows that the build
     did not: it is not answered.
  4. Ids are never compared across databases: the build that a position belongs to is named in the
     guard's note, which is believed for one database only.
Tried with writers in other processes: xmax for xmin, a catch-up shared by transactions, and the
greatest id for a position each lose keys within seconds (tests/sql/outbox/test_catch_up_race.py);
positions at xmin lose every key after a crash (tests/sql/outbox/test_catch_up_crash.py).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text, update
from sqlalchemy.engine import Connection, Dialect, Engine

from bloomstore.errors import BloomStoreError, StoreReadOnly
from bloomstore.keys import Key
from bloomstore.rebuild.rebuild_lock import is_rebuilt
from bloomstore.rebuild.state import read_state
from bloomstore.sql.attached import MOVING, has_caught_up, mark_caught_up
from bloomstore.sql.databases import database_of, traits_of
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.databases.isolation import is_autocommit
from bloomstore.sql.databases.snapshot_sql import FLUSHED, INSERTED, IS_FED, IS_REWRITTEN, XMIN
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.record import Note
from bloomstore.sql.guards.trust import INVALID
from bloomstore.sql.schema.outbox_tables import key_names, outbox_name, trigger_names
from bloomstore.sql.schema.registry import TABLE as REGISTRY

LONGEST = 50_000  # keys that one asker reads; the follower reads any number
NOTED = 1_000  # keys after which the position is written down: a note is a durable commit
BEHIND = f"more than {LONGEST} keys behind its outbox: run `bloomstore follow`, or build it"
PURGED = "keys were purged from its outbox before they were read"
UNFED = "triggers of its outbox are missing or do not always run: make the outbox anew"
REWRITTEN = "the table was rewritten (TRUNCATE, COPY FREEZE ...) after the transaction's snapshot"
NO_ANSWER = "a guard with an outbox is asked in a transaction of PostgreSQL, or with a staleness"


@dataclass(frozen=True, slots=True)
class Base:
    """The snapshot that a build has read: where positions begin."""

    build: str
    xmin: int
    xmax: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Move:
    """A position that waits until its ids are on the server's disk, and who has seen it."""

    to: int
    inserted: int
    process: int
    keys: int


class Feed:
    """The feed of one active guard. Safe in several threads."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = weakref.proxy(guard)
        self._lock = threading.Lock()  # protects the position and what is not noted of it
        self._position = ("", 0)  # of which build, and up to which transaction
        self._unnoted = 0
        self._raw: bytes | None = None  # the note that the base was read from
        self._base: Base | None = None
        self._followed: float | None = None

    # Asking ------------------------------------------------------------------------

    def catch_up(self, connection: Connection | None) -> str:
        """Reads what is missing; "" if ABSENT may be believed now, else why it may not."""
        guard = self._guard
        if why := guard.why_unknown():
            return str(why)
        if connection is None or not traits_of(connection.dialect).has_transaction_ids:
            return self._why_stale()
        base = self.base()
        if base is None:
            return "not built since it has an outbox"
        transaction = connection.get_transaction()
        if (
            transaction is not None
            and not is_autocommit(connection)
            and has_caught_up(transaction, base.build)
        ):
            return ""
        if why := self._read(connection, base):
            return why
        transaction = connection.get_transaction()  # reading may have begun it
        if transaction is not None:
            mark_caught_up(transaction, base.build)
        return ""

    def _read(self, connection: Connection, base: Base) -> str:
        guard = self._guard
        position = self.position(base)
        keys = ", ".join(f"o.{name}" for name in self.keys)
        query = text(
            f"SELECT {XMIN}, g.epoch, g.floor, current_setting('transaction_isolation'),"  # noqa: S608
            f" {IS_FED}, {IS_REWRITTEN},"
            f" {INSERTED}, {FLUSHED}, pg_backend_pid(), o.xid, {keys}"
            f" FROM {REGISTRY.name} g CROSS JOIN (SELECT to_regclass(:table) AS oid) t"
            f" LEFT JOIN {self.outbox(connection.dialect)} o ON o.xid >= :position"
            f" WHERE g.name = :guard LIMIT {LONGEST + 1}"
        )
        inserts, updates = trigger_names(guard.name)
        asked = {
            "position": position,
            "guard": guard.name,
            "table": connection.dialect.identifier_preparer.format_table(guard.declared.table),
            "inserts": inserts,
            "updates": updates,
        }
        rows = connection.execute(query, asked).all()
        if not rows:
            return f"it has no row in {REGISTRY.name}"
        xmin, epoch, floor, level, is_fed, is_rewritten, inserted, flushed, process = rows[0][:9]
        if epoch > base.epoch:
            return self._fence(INVALID)
        if not is_fed:
            return self._fence(UNFED)
        if floor is None or position < floor:
            return self._fence(PURGED)
        if level != "read committed" and xmin < base.xmax:
            return "the transaction is older than the build"
        if is_rewritten:
            return REWRITTEN
        if len(rows) > LONGEST:
            return self._fence(BEHIND)
        found = [row[9:] for row in rows if row[9] is not None]
        if why := self.apply(row[1:] for row in found):
            return why
        ended = max((xid for xid, *_ in found if xid < xmin), default=0)
        move = Move(ended + 1, int(inserted), process, len(found)) if ended else None
        self._move(connection.info, base, move, int(flushed), process)
        return ""

    def _move(self, info: Any, base: Base, move: Move | None, flushed: int, process: int) -> None:
        """Moves the position to where this process of the server has seen ids on its disk."""
        moving: dict[str, Move] = info.setdefault(MOVING, {})
        before = moving.pop(base.build, None)
        for each in (before, move):
            if each is not None and each.process == process:
                if each.inserted <= flushed:
                    self.advance(base, each.to, each.keys)
                else:
                    moving.setdefault(base.build, each)  # the older one, or it would never come

    def _why_stale(self) -> str:
        """Whether the last pass of a follower on this host is young enough."""
        allowed = self._guard.declared.guard.staleness
        if allowed is None:
            return NO_ANSWER
        now = clock()
        if self._followed is None or now - self._followed > allowed:
            self._followed = self._last_pass()
        if self._followed is None:
            return "no follower has been here since the host was started"
        if now - self._followed > allowed:
            return f"its follower's last pass is {now - self._followed:.1f} s old"
        return ""

    # Reading -----------------------------------------------------------------------

    @property
    def keys(self) -> list[str]:
        """The names of the outbox's key columns."""
        return key_names(len(self._guard.declared.columns))

    def outbox(self, dialect: Dialect) -> str:
        """The outbox, quoted."""
        quote = dialect.identifier_preparer.quote_identifier
        schema = self._guard.declared.table.schema
        parts = ([] if schema is None else [schema]) + [outbox_name(self._guard.name)]
        return ".".join(map(quote, parts))

    def apply(self, raw: Iterable[Any]) -> str:
        """Adds raw values durably; why it could not, or ""."""
        guard = self._guard
        form = guard.canon
        if form is None:
            return str(guard.doubt)
        is_one = len(guard.declared.columns) == 1
        try:
            found: list[Key] = [form.key_of_stored(row[0] if is_one else tuple(row)) for row in raw]
        except Unclear as why:
            return self._fence(f"a key in its outbox has no form: {why}")
        try:
            with guard.store.apart():  # what is read here is not read again
                guard.filter.add_many(found)
        except BloomStoreError as error:
            guard.reopen()
            return str(error)
        return ""

    def _fence(self, reason: str) -> str:
        with contextlib.suppress(StoreReadOnly):
            self._guard.fence(reason)
        return reason

    # Positions ---------------------------------------------------------------------

    def base(self) -> Base | None:
        """What the note says of the build; None if there was none with an outbox."""
        raw = self._guard.store.notes.get(f"guard/{self._guard.name}")
        if raw != self._raw:
            note = None if raw is None else Note.unpack(raw)
            given = {} if note is None else note.feed
            self._base = Base(**given, epoch=note.epoch) if note and given else None
            self._raw = raw
        return self._base

    def position(self, base: Base) -> int:
        """Every key of a committed transaction below this one is in the filter."""
        noted = self._guard.store.notes.get(self._name("position"))
        build, xid = ("", 0) if noted is None else json.loads(noted)
        known = [base.xmin]
        known += [each for of, each in ((build, xid), self._position) if of == base.build]
        return max(known)

    def advance(self, base: Base, to: int, keys: int) -> None:
        """The keys below this id are durable in the filter, and the ids on the server's disk."""
        with self._lock:
            build, xid = self._position
            self._position = (base.build, max(to, xid) if build == base.build else to)
            self._unnoted += keys
            is_due = self._unnoted >= NOTED
        if is_due:
            self.note_position()

    def note_position(self) -> None:
        """Lets other processes, and the next life of this one, begin here."""
        with self._lock:
            position, self._unnoted = self._position, 0
        base = self.base()
        if base is not None and position[0] == base.build and position[1] > self._noted(base):
            store = self._guard.store
            with contextlib.suppress(StoreReadOnly), store.apart():
                store.notes[self._name("position")] = json.dumps(position).encode()

    def _noted(self, base: Base) -> int:
        noted = self._guard.store.notes.get(self._name("position"))
        build, xid = ("", 0) if noted is None else json.loads(noted)
        return xid if build == base.build else base.xmin

    def _name(self, what: str) -> str:
        return f"guard/{self._guard.name}/{what}"

    # Building and following --------------------------------------------------------

    def rebuilding_from(self) -> list[int]:
        """Where the positions of a rebuild that has begun will start; none if there is none."""
        store, name = self._guard.store, self._guard.name
        is_going_on = is_rebuilt(store, name) or read_state(store, name) is not None
        raw = store.notes.get(f"guard/{name}")
        begun = {} if raw is None else Note.unpack(raw).feed_building
        return [begun["xmin"]] if is_going_on and "xmin" in begun else []

    def followed(self, began: float) -> None:
        """A follower has applied everything that was committed before this moment."""
        stamp = json.dumps({"boot": self._guard.store.boot, "began": began}).encode()
        self._guard.store.notes[self._name("followed")] = stamp

    def _last_pass(self) -> float | None:
        raw = self._guard.store.notes.get(self._name("followed"))
        if raw is None:
            return None
        found = json.loads(raw)
        return found["began"] if found["boot"] == self._guard.store.boot else None


def begin(connection: Connection) -> dict[str, Any]:
    """What the note says of the snapshot that a build reads, or of an older one."""
    xmin, xmax = database_of(connection.dialect).snapshot_ids(connection)
    return {"build": uuid.uuid4().hex, "xmin": xmin, "xmax": xmax}


def seal(engine: Engine, guard: str) -> None:
    """When it returns, whatever could be seen before is on the server's disk.

    A row whose deletion is lost in a crash is there again: a build must not have missed it.
    """
    database = database_of(engine.dialect)
    if database.TRAITS.crash_loses_commits:
        own = REGISTRY.c.name == guard
        with engine.begin() as connection:
            database.commit_to_disk(connection)
            connection.execute(update(REGISTRY).where(own).values(epoch=REGISTRY.c.epoch))


def clock() -> float:
    """Seconds that every process of this host counts alike, since it was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
