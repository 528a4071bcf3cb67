"""The feed of a guard: keys that reach its filter through an outbox, whichever program wrote them.

A guard with a feed does not rely on capture: triggers write each new key to the outbox in the
writer's own transaction (schema/outbox_tables.py). The keys that are in the outbox and not yet in
the filter are read

    PostgreSQL    in the asking transaction, before its first answer: `catch_up`
    elsewhere     by a follower (follower.py); answers are as old as its last pass, so they are
                  given only to guards that allow a staleness

A catch-up reads the keys at and above the filter's position (position.py) together with xmin of the
snapshot that it reads with: all transactions below xmin have ended, so nothing can appear
there any more. The position moves past the last transaction below xmin that has keys.

After a crash a server reuses ids that had not reached its disk: those of asynchronous
commits, and of transactions that were rolled back. So a position moves only up to an id that is on
the disk: one whose WAL was flushed, as the same server process says now or at its next catch-up.

Invariants
  1. A position is moved only after the keys below it are durable in the filter, and the ids below
     it on the server's disk.
  2. One catch-up says nothing about another transaction, which may see more. It says nothing
     after a write of the same transaction either: triggers may have changed the key.
  3. Under REPEATABLE READ a transaction that is older than the build may see rows that the build
     did not: it is not answered.
  4. Ids are never compared across databases: the build that a position belongs to is named in the
     guard's record, which is believed for one database only.
Tried with writers in other processes: xmax for xmin, a catch-up shared by transactions, and the
greatest id for a position each lose keys within seconds (test_catch_up_race.py); positions at xmin
lose every key after a crash (test_catch_up_crash.py).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Dialect

from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.errors import BloomStoreError, StoreReadOnly
from bloomstore.keys import Key
from bloomstore.sql.attached import MOVING, has_caught_up, mark_caught_up
from bloomstore.sql.databases import traits_of
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.databases.isolation import is_autocommit
from bloomstore.sql.databases.snapshot_sql import FLUSHED, INSERTED, IS_FED, IS_REWRITTEN, XMIN
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.trust import INVALID
from bloomstore.sql.outbox.position import BuildSnapshot, Position, clock
from bloomstore.sql.schema.outbox_tables import key_names, outbox_name, trigger_names
from bloomstore.sql.schema.registry import TABLE as REGISTRY

LONGEST = 50_000  # keys that one lookup reads; the follower reads any number
BEHIND = Reason(
    ReasonCode.BEHIND,
    f"more than {LONGEST} keys behind its outbox: run `bloomstore follow`, or build it",
)
PURGED = Reason(ReasonCode.PURGED, "keys were purged from its outbox before they were read")
UNFED = Reason(
    ReasonCode.UNFED,
    "triggers of its outbox are missing or do not always run: drop and create the outbox again",
)
REWRITTEN = "the table was rewritten (TRUNCATE, COPY FREEZE ...) after the transaction's snapshot"
NO_ANSWER = "a guard with an outbox answers in a transaction of PostgreSQL, or with a staleness"


@dataclass(frozen=True, slots=True)
class Move:
    """A position that waits until its ids are on the server's disk, and the process that saw it."""

    to: int
    inserted: int
    process: int
    keys: int


class Feed:
    """The feed of one active guard. Safe in several threads."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = weakref.proxy(guard)
        self.position = Position(guard.store, guard.name)
        self._last_pass: float | None = None

    # Asking ------------------------------------------------------------------------

    def catch_up(self, connection: Connection | None) -> str:
        """Reads missing keys; "" if ABSENT may be believed now, else why it may not."""
        guard = self._guard
        if why := guard.why_unknown():
            return str(why)
        if connection is None or not traits_of(connection.dialect).has_transaction_ids:
            return self._why_stale()
        snapshot = self.position.snapshot()
        if snapshot is None:
            return "it was not built since it got its outbox: build it"
        transaction = connection.get_transaction()
        if (
            transaction is not None
            and not is_autocommit(connection)
            and has_caught_up(transaction, snapshot.build)
        ):
            return ""
        if why := self._read(connection, snapshot):
            return why
        transaction = connection.get_transaction()  # reading may have begun it
        if transaction is not None:
            mark_caught_up(transaction, snapshot.build)
        return ""

    def _read(self, connection: Connection, snapshot: BuildSnapshot) -> str:
        guard = self._guard
        position = self.position.of(snapshot)
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
        parameters = {
            "position": position,
            "guard": guard.name,
            "table": connection.dialect.identifier_preparer.format_table(guard.declared.table),
            "inserts": inserts,
            "updates": updates,
        }
        rows = connection.execute(query, parameters).all()
        if not rows:
            return f"it has no row in {REGISTRY.name}"
        xmin, epoch, floor, level, is_fed, is_rewritten, inserted, flushed, process = rows[0][:9]
        if epoch > snapshot.epoch:
            return self._fence(INVALID)
        if not is_fed:
            return self._fence(UNFED)
        if floor is None or position < floor:
            return self._fence(PURGED)
        if level != "read committed" and xmin < snapshot.xmax:
            return "the transaction is older than the build"
        if is_rewritten:
            return REWRITTEN
        if len(rows) > LONGEST:
            return self._fence(BEHIND)
        key_rows = [row[9:] for row in rows if row[9] is not None]
        if why := self.apply(row[1:] for row in key_rows):
            return why
        ended = max((xid for xid, *_ in key_rows if xid < xmin), default=0)
        move = Move(ended + 1, int(inserted), process, len(key_rows)) if ended else None
        self._move(connection.info, snapshot, move, int(flushed), process)
        return ""

    def _move(
        self, info: Any, snapshot: BuildSnapshot, move: Move | None, flushed: int, process: int
    ) -> None:
        """Moves the position to where this process of the server has seen ids on its disk."""
        moving: dict[str, Move] = info.setdefault(MOVING, {})
        before = moving.pop(snapshot.build, None)
        for each in (before, move):
            if each is not None and each.process == process:
                if each.inserted <= flushed:
                    self.position.advance(snapshot, each.to, each.keys)
                else:
                    moving.setdefault(
                        snapshot.build, each
                    )  # keep the older one, or it would never arrive

    def _why_stale(self) -> str:
        """Whether the last pass of a follower on this host is young enough."""
        allowed = self._guard.declared.guard.staleness
        if allowed is None:
            return NO_ANSWER
        now = clock()
        if self._last_pass is None or now - self._last_pass > allowed:
            self._last_pass = self.position.last_pass()
        if self._last_pass is None:
            return "no follower has run on this host since it was started: run `bloomstore follow`"
        if now - self._last_pass > allowed:
            return f"its follower's last pass is {now - self._last_pass:.1f} s old"
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
            return self._fence(f"a value in its outbox has no key: {why}")
        try:
            with guard.store.apart():  # durable now: these keys are not read again
                guard.filter.add_many(found)
        except BloomStoreError as error:
            guard.reopen()
            return str(error)
        return ""

    def note_position(self) -> None:
        """Writes the position to the store, for other processes and the next start."""
        self.position.write()

    def _fence(self, reason: str | Reason) -> str:
        with contextlib.suppress(StoreReadOnly):
            self._guard.fence(reason)
        return str(reason)
