"""Typed access to the catalog: read views and atomic changes.

In: rows, out: rows. `read()` gives a CatalogView of one moment; `write()` a CatalogChange that is
committed, durably, when its block ends, and undone when it raises.

Invariants
  1. A CatalogChange is only begun by the holder of the writer lock, so LMDB's own writer lock
     never waits.
  2. No view or change outlives the block it was made in; no user code runs inside.
  3. Journal sequences only grow, also after all rows were deleted (Counters.sequence).

    table       key                          value
    store       "identity" | "counters"      store id | next number, generation, sequence
    filters     name, UTF-8                  FilterRow
    stages      filter u64, chain u32, stage u32 (big-endian)   StageRow
    blocks      number u64, first block u64  up to 1024 checksums, 4 bytes each
    journal     sequence u64                 JournalRow
    tombstones  number u64                   name of a file that may be unlinked
    notes       any bytes                    any bytes (plugins)

Not here: when to write what (store).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import os
import uuid
from pathlib import Path
from typing import Any

import lmdb

from bloomstore.catalog import rows
from bloomstore.catalog.environment import TABLES, make_environment, open_environment
from bloomstore.catalog.gate import Gate
from bloomstore.catalog.rows import Counters, Identity
from bloomstore.catalog.view import CatalogChange, CatalogView
from bloomstore.errors import StoreFailed


def make_catalog(path: Path, created_at: float, number: int) -> None:
    """Creates an empty catalog of the format with this number, whole or not at all."""
    identity = rows.pack_identity(
        Identity(
            store_id=uuid.uuid4().bytes,
            incarnation=uuid.uuid4().hex,
            created_at=created_at,
            lmdb_version=".".join(map(str, lmdb.version())),
            format=number,
        )
    )
    counters = rows.pack_counters(Counters())
    first = {
        b"identity": rows.frame("store", b"identity", identity),
        b"counters": rows.frame("store", b"counters", counters),
    }
    make_environment(path, {"store": first})


class Catalog:
    """An open catalog. One per store and process; not used across a fork."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.gate = Gate()
        self._change: CatalogChange | None = None  # the one that is open, under the writer lock
        self._environment = open_environment(path, read_only=read_only)
        self.file_number = (path / "data.mdb").stat().st_ino  # a copied file has another
        try:
            self._tables = {
                name: self._environment.open_db(name.encode(), create=False) for name in TABLES
            }
        except lmdb.Error as error:
            self._environment.close()
            raise StoreFailed(f"{path}: not a catalog of a store: {error}") from error

    @contextlib.contextmanager
    def read(self) -> abc.Iterator[CatalogView]:
        """A view of this moment."""
        self.gate.enter()
        try:
            with self._begin(write=False) as transaction:
                yield CatalogView(transaction, self._tables)
        except lmdb.Error as error:
            raise StoreFailed(f"{self.path}: reading the catalog failed: {error}") from error
        finally:
            self.gate.leave()

    @contextlib.contextmanager
    def write(self) -> abc.Iterator[CatalogChange]:
        """A change that is durable when the block ends. Only under the writer lock."""
        self.gate.enter()
        change: CatalogChange | None = None
        try:
            with self._begin(write=True) as transaction:
                change = self._change = CatalogChange(transaction, self._tables)
                yield change
        except lmdb.Error as error:
            raise StoreFailed(f"{self.path}: committing failed: {error}") from error
        finally:
            if change is None or not change.is_left:
                self._change = None
                self.gate.leave()

    def attempt(self) -> Attempt:
        """A block with a change that is undone at its end, unless `commit` was called inside.

        For a durable add of one key: a block of contextlib takes 5 us. Only under the writer lock.
        """
        return Attempt(self)

    def commit(self, change: CatalogChange) -> None:
        """Makes the change of an attempt durable."""
        change.commit()
        self._change = None
        self.gate.leave()

    def end_left_change(self) -> None:
        """Undoes a change whose block never ended; called at the end of the writer lock.

        An interrupt (Ctrl-C) in the moment in which `write` should end leaves its transaction open
        for as long as anybody keeps the traceback, and other processes would wait for it in LMDB.
        """
        change, self._change = self._change, None
        if change is not None:
            change.is_left = True
            change.abort()
            self.gate.leave()

    @contextlib.contextmanager
    def settled(self) -> abc.Iterator[CatalogView]:
        """A view that shows a commit whose process died in it: on disk, but not in LMDB's table.

        Only the next write transaction notices that the last writer died, and repairs the table,
        so this is one, and is undone. Without it the next holder of the writer lock looks at the
        state before that commit, and an acknowledged key was lost (found by kills inside the
        commit). 2.3 us. Only under the writer lock.
        """
        self.gate.enter()
        try:
            transaction = self._begin(write=True)
            try:
                yield CatalogView(transaction, self._tables)
            finally:
                transaction.abort()
        except lmdb.Error as error:
            raise StoreFailed(f"{self.path}: the catalog takes no changes: {error}") from error
        finally:
            self.gate.leave()

    def settle(self) -> None:
        """Makes the next read show what `settled` shows."""
        with self.settled():
            pass

    def _begin(self, *, write: bool) -> Any:
        try:
            return self._environment.begin(write=write)
        except lmdb.MapResizedError:  # another process has made the map larger
            self._environment.set_mapsize(0)
            return self._environment.begin(write=write)

    def forget_dead_readers(self) -> None:
        """Frees the reader slots of killed processes; they would keep old pages alive."""
        self._environment.reader_check()

    def copy(self, folder: Path) -> None:
        """Writes a consistent copy of the catalog into an existing empty folder."""
        self._environment.copy(os.fsencode(folder))  # type: ignore[arg-type]  # takes bytes too

    def close(self) -> None:
        """Waits for transactions to end and closes the environment."""
        self.gate.close()
        self._environment.close()

    def abandon(self) -> None:
        """In a forked child: closes the copy of the parent's environment."""
        self.gate = Gate()
        self.gate.close()
        self._environment.close()


class Attempt:
    """The block of Catalog.attempt."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __enter__(self) -> CatalogChange:
        catalog = self._catalog
        catalog.gate.enter()
        try:
            change = catalog._change = CatalogChange(catalog._begin(write=True), catalog._tables)
        except lmdb.Error as error:
            raise StoreFailed(f"{catalog.path}: the catalog takes no changes: {error}") from error
        finally:
            if catalog._change is None:
                catalog.gate.leave()
        return change

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._catalog.end_left_change()
        if isinstance(error, lmdb.Error):
            what = f"{self._catalog.path}: committing failed: {error}"
            raise StoreFailed(what) from error
