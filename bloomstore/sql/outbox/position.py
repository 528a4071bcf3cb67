"""How far the outbox of a guard was read: positions, and the last pass of its follower.

A position is a transaction id: every key of a committed transaction below it is in the filter. It
begins at xmin of the snapshot that the build has read, and counts for that build only. Databases
without transaction ids have no positions; the follower's last pass says how old the filter is.

Both are notes of the store, so that other processes, and the next start of this one, continue from
them. A note is a durable commit, so a position is written only now and then; an older one costs
time and loses no key.

Invariant: a position moves only after the keys below it are durable in the filter, and the ids
below it on the server's disk (catch_up.py says why).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update
from sqlalchemy.engine import Connection, Engine

from bloomstore import Store
from bloomstore.errors import StoreReadOnly
from bloomstore.rebuild.rebuild_lock import is_rebuilt
from bloomstore.rebuild.state import read_state
from bloomstore.sql.databases import database_of
from bloomstore.sql.guards.record import Record, read_record
from bloomstore.sql.schema.registry import TABLE as REGISTRY
from bloomstore.store.note_names import followed_note, guard_note, position_note

KEYS_PER_NOTE = 1_000  # keys after which the position is written down


@dataclass(frozen=True, slots=True)
class BuildSnapshot:
    """The snapshot that a build has read: positions begin at its xmin."""

    build: str
    xmin: int
    xmax: int
    epoch: int


class Position:
    """The position of one guard in its outbox. Safe in several threads."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lock = threading.Lock()  # protects the two fields below
        self._reached = ("", 0)  # of which build, and up to which transaction
        self._unwritten = 0  # keys since the position was written down
        self._raw: bytes | None = None  # the record that the snapshot was read from
        self._snapshot: BuildSnapshot | None = None

    def snapshot(self) -> BuildSnapshot | None:
        """The snapshot of the last build; None if there was none with an outbox."""
        raw = self._store.notes.get(guard_note(self._name))
        if raw != self._raw:
            record = None if raw is None else Record.unpack(raw)
            self._snapshot = (
                BuildSnapshot(**record.feed, epoch=record.epoch)
                if record is not None and record.feed
                else None
            )
            self._raw = raw
        return self._snapshot

    def of(self, snapshot: BuildSnapshot) -> int:
        """Every key of a committed transaction below this one is in the filter."""
        reached = [self._written(), self._reached]
        return max([snapshot.xmin, *(xid for build, xid in reached if build == snapshot.build)])

    def advance(self, snapshot: BuildSnapshot, to: int, keys: int) -> None:
        """Moves the position up to this id: the keys and the ids below it are durable."""
        with self._lock:
            build, xid = self._reached
            self._reached = (snapshot.build, max(to, xid) if build == snapshot.build else to)
            self._unwritten += keys
            is_due = self._unwritten >= KEYS_PER_NOTE
        if is_due:
            self.write()

    def write(self) -> None:
        """Writes the position, so that other processes and the next start begin there."""
        with self._lock:
            (build, xid), self._unwritten = self._reached, 0
        snapshot = self.snapshot()
        if snapshot is None or build != snapshot.build:
            return
        written_build, written = self._written()
        if xid > (written if written_build == build else snapshot.xmin):
            with contextlib.suppress(StoreReadOnly), self._store.apart():
                note = json.dumps([build, xid]).encode()
                self._store.notes[position_note(self._name)] = note

    def _written(self) -> tuple[str, int]:
        note = self._store.notes.get(position_note(self._name))
        build, xid = ("", 0) if note is None else json.loads(note)
        return build, xid

    def of_rebuild(self) -> int | None:
        """Where the position of a rebuild that has begun will start; None if there is none."""
        store, name = self._store, self._name
        is_going_on = is_rebuilt(store, name) or read_state(store, name) is not None
        record = read_record(store, name)  # after that: a rebuild writes it when it holds its lock
        if record is None or not is_going_on:
            return None
        xmin: int | None = record.feed_building.get("xmin")
        return xmin

    # Passes of a follower ----------------------------------------------------------

    def passed(self, began: float) -> None:
        """Records that a follower has applied everything committed before this moment."""
        note = json.dumps({"boot": self._store.boot, "began": began}).encode()
        self._store.notes[followed_note(self._name)] = note

    def last_pass(self) -> float | None:
        """When the last complete pass began; None if there was none since the host was started."""
        note = self._store.notes.get(followed_note(self._name))
        if note is None:
            return None
        last = json.loads(note)
        return last["began"] if last["boot"] == self._store.boot else None


def new_snapshot(connection: Connection) -> dict[str, Any]:
    """The record's fields for the snapshot that a build reads on this connection, or an older one.

    The build gets a random name.
    """
    xmin, xmax = database_of(connection.dialect).snapshot_ids(connection)
    return {"build": uuid.uuid4().hex, "xmin": xmin, "xmax": xmax}


def flush_commits(engine: Engine, guard: str) -> None:
    """Makes sure that every commit that could be seen before is on the server's disk.

    A crash that loses a deletion brings the row back, and a build must not have missed it.
    """
    database = database_of(engine.dialect)
    if database.TRAITS.crash_loses_commits:
        row = REGISTRY.c.name == guard
        with engine.begin() as connection:
            database.commit_to_disk(connection)
            connection.execute(update(REGISTRY).where(row).values(epoch=REGISTRY.c.epoch))


def clock() -> float:
    """Seconds since the host was started, which all its processes count alike."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
