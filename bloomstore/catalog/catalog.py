"""Typed access to the catalog: read views and atomic changes.

In: rows, out: rows. `read()` gives a CatalogView of one moment; `write()` a CatalogChange that is
committed, durably, when its block ends, and undone when it raises.

Invariants
  1. A CatalogChange is only begun by the holder of the writer lock, so LMDB's own writer lock
     never waits.
  2. No view or change outlives the block it was made in; no user code runs inside.
  3. Journal sequences only grow, also after all rows were deleted (Counters.sequence).
  4. No error of LMDB leaves this package: transaction.py turns those of transactions into errors of
     ours, `_ask` those of every other call on the environment.

    table       key                          value
    store       "identity" | "counters"      store id | next number, generation, sequence
    filters     name, UTF-8                  FilterRow
    stages      filter u64, chain u32, stage u32 (big-endian)   StageRow
    blocks      number u64, first block u64  up to 1024 checksums, 4 bytes each
    journal     sequence u64                 JournalRow
    tombstones  number u64                   name of a file that may be unlinked
    notes       any bytes                    any bytes (plugins)

Not here: the order of changes (store).
"""

from __future__ import annotations

import collections.abc as abc
import os
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from bloomstore.catalog import frames, rows
from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.environment import (
    MAP_BYTES,
    TABLES,
    engine_version,
    make_environment,
    open_environment,
)
from bloomstore.catalog.gate import Gate
from bloomstore.catalog.journal_index import JournalIndex
from bloomstore.catalog.room import Room
from bloomstore.catalog.rows import Counters, Identity
from bloomstore.catalog.transaction import Attempt, Reading, Settled, Writing
from bloomstore.catalog.witness import Witness
from bloomstore.errors import StoreFailed

T = TypeVar("T")


def make_catalog(path: Path, created_at: float, number: int) -> None:
    """Creates an empty catalog of the format with this number, whole or not at all."""
    identity = rows.pack_identity(
        Identity(
            store_id=uuid.uuid4().bytes,
            incarnation=uuid.uuid4().hex,
            created_at=created_at,
            lmdb_version=engine_version(),
            format=number,
        )
    )
    counters = rows.pack_counters(Counters())
    first = {
        b"identity": frames.frame("store", b"identity", identity),
        b"counters": frames.frame("store", b"counters", counters),
    }
    make_environment(path, {"store": first})


class Catalog:
    """An open catalog. One per store and process; not used across a fork."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        map_size: int = MAP_BYTES,
        witness: Witness | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.witness = Witness() if witness is None else witness
        # Tables whose rows could all be read once: names that are missing there do not exist.
        self._sound: set[str] = set()
        self.gate = Gate()
        self._map_size = map_size
        # Whether the environment must be reopened. The lock is held to do so, and by a fork.
        self.is_spent = False
        self._renewing = threading.RLock()
        self._is_paused = False
        self._open()

    def _open(self) -> None:
        environment = open_environment(self.path, read_only=self.read_only, map_size=self._map_size)
        try:
            # A copied file has another number.
            self.file_number = (self.path / "data.mdb").stat().st_ino
            self._tables = {
                name: environment.open_db(name.encode(), create=False) for name in TABLES
            }
            self._room = Room(self.path, environment, self._map_size)
            # Arguments of every view; views of committed state get the index besides.
            self.known = self._tables, self._sound
            self.index = JournalIndex()
        except BaseException as error:
            environment.close()
            if isinstance(error, lmdb.Error):
                what = f"{self.path}: not a catalog of a store: {error}"
                raise StoreFailed(what) from error
            raise
        self._environment = environment

    def read(self) -> Reading:
        """A block with a view of this moment."""
        return Reading(self)

    def write(self) -> Writing:
        """A block with a change that is durable when it ends. Only under the writer lock."""
        return Writing(self)

    def attempt(self) -> Attempt:
        """A block with a change that is undone at its end, unless `commit` was called inside.

        Only under the writer lock.
        """
        return Attempt(self)

    def commit(self, change: CatalogChange) -> None:
        """Makes the change of an attempt durable."""
        number = change.number
        try:
            change.commit()
        except lmdb.Error:
            self.is_spent = True
            raise
        self.witness.set(number)

    def settled(self) -> Settled:
        """A view that shows a commit whose process died in it: on disk, but not in LMDB's table.

        Only the next write transaction notices that the last writer died, and repairs the table,
        so this is one, and is undone. Without it the next holder of the writer lock looks at the
        state before that commit, and an acknowledged key was lost (found by kills inside the
        commit). 2.3 us. Only under the writer lock.
        """
        return Settled(self)

    def settle(self) -> None:
        """Makes the next read show what `settled` shows."""
        with self.settled():
            pass

    def begin(self, *, write: bool) -> Any:
        """A transaction of LMDB, for transaction.py, which enters the gate and handles errors."""
        return self._environment.begin(write=write)

    def last_number(self) -> int:
        """The number of the last commit, for transaction.py, which handles errors of LMDB."""
        return int(self._environment.info()["last_txnid"])

    def _ask(self, what: str, question: abc.Callable[[], T]) -> T:
        """The answer of LMDB to a question. Raises StoreFailed; `what` names the failure."""
        try:
            return question()
        except lmdb.Error as error:
            raise StoreFailed(f"{self.path}: {what}: {error}") from error

    def mend(self, error: lmdb.Error) -> bool:
        """Whether a transaction that could not begin may do so now. Not inside the gate."""
        if isinstance(error, lmdb.ReadersFullError):  # dead processes may hold reader slots
            self._environment.reader_check()
        elif isinstance(error, lmdb.PanicError | lmdb.MapResizedError):
            self.is_spent = True
            self.renew()
        else:
            return False
        return True

    def renew(self) -> None:
        """Reopens the environment, if it is spent, when no thread is inside.

        LMDB gives up an environment for good when the write of a meta page fails; and one whose
        map another process has outgrown must be mapped again.
        """
        if self.gate.is_inside:  # another thread may have the lock, and wait for this one to leave
            return
        with self._renewing:
            if not self.is_spent:
                return
            try:
                self.gate.shut()
                self.gate.require_open()
                self._environment.close()
                self._open()
                self.is_spent = False
            finally:
                self.gate.is_shut = False  # no call: an interrupt cannot come before it

    def require_alive(self) -> None:
        """Raises StoreFailed if the catalog cannot be read."""
        with self.read():
            pass

    def pause(self) -> None:
        """Waits until no thread is inside, and keeps all of them out (before a fork)."""
        if not self._renewing._is_owned():  # type: ignore[attr-defined]
            self._is_paused = True
            self._renewing.acquire()
        self.gate.shut()

    def resume(self) -> None:
        """The end of `pause`, in the parent. Both may come twice."""
        self.gate.is_shut = False
        if self._is_paused:
            if self._renewing._is_owned():  # type: ignore[attr-defined]
                self._renewing.release()
            self._is_paused = False

    def require_room(self) -> None:
        """Called before rows are added. Raises StoreFailed if others must go first (room.py)."""
        self._ask("takes no additions", lambda: self._room.require(self._live_bytes))

    def _live_bytes(self) -> int:
        with self.read() as view:
            return view.live_bytes()

    @property
    def last_commit(self) -> int:
        """The number of the last commit; a change that changed nothing is not counted."""
        return self._ask("its last commit is not known", self.last_number)

    def forget_dead_readers(self) -> None:
        """Frees the reader slots of killed processes; they would keep old pages alive."""
        self._ask("its readers cannot be listed", self._environment.reader_check)

    def copy(self, folder: Path) -> None:
        """Writes a consistent copy of the catalog, without free pages, into an empty folder."""
        where: Any = os.fsencode(folder)  # py-lmdb takes bytes too
        copy = partial(self._environment.copy, where, compact=True)
        self._ask(f"cannot be copied to {folder}", copy)

    def close(self) -> None:
        """Waits for transactions to end and closes the environment."""
        with self._renewing:
            self.gate.close()
            self._environment.close()

    def abandon(self) -> None:
        """In a forked child: closes the copy of the parent's environment."""
        self._renewing = threading.RLock()
        self._is_paused = False
        self.gate = Gate()
        self.gate.close()
        self._environment.close()
