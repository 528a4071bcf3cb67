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
import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import lmdb
import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog import rows
from bloomstore.catalog.environment import TABLES, make_environment, open_environment
from bloomstore.catalog.gate import Gate
from bloomstore.catalog.rows import Counters, FilterRow, Identity, JournalRow, StageRow
from bloomstore.errors import DamagedRow, FilterNotFound, StoreFailed

CHECKSUMS_PER_ROW = 1024
_NUMBER = struct.Struct(">Q")
_BLOCKS_KEY = struct.Struct(">QQ")


def make_catalog(path: Path, created_at: float) -> None:
    """Creates an empty catalog, whole or not at all."""
    identity = rows.pack_identity(
        Identity(
            store_id=uuid.uuid4().bytes,
            incarnation=uuid.uuid4().hex,
            created_at=created_at,
            lmdb_version=".".join(map(str, lmdb.version())),
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


class CatalogView:
    """What the catalog said at one moment."""

    def __init__(self, transaction: Any, tables: dict[str, Any]) -> None:
        self._transaction = transaction
        self._tables = tables

    def identity(self) -> Identity:
        """Which store this is."""
        return rows.unpack_identity(self._need("store", b"identity"))

    @property
    def transaction(self) -> int:
        """The number of the last commit that this view shows."""
        return int(self._transaction.id())

    def counters(self) -> Counters:
        """Next number, generation, and the last journal sequence ever used."""
        counters = rows.unpack_counters(self._need("store", b"counters"))
        with self._cursor("journal") as cursor:
            if cursor.last():
                last = int.from_bytes(cursor.key(), "big")
                if last > counters.sequence:
                    counters = Counters(
                        next_number=counters.next_number,
                        generation=counters.generation,
                        sequence=last,
                    )
        return counters

    def filter_names(self) -> list[str]:
        """All names, sorted by their UTF-8."""
        with self._cursor("filters") as cursor:
            return [key.decode(errors="replace") for key in cursor.iternext(values=False)]

    def filter_row(self, name: str) -> FilterRow | None:
        """The filter of this name."""
        payload = self._get("filters", name.encode())
        return None if payload is None else rows.unpack_filter(name.encode(), payload)

    def filter_rows(self) -> abc.Iterator[FilterRow]:
        """All filters by name."""
        for key, payload in self._scan("filters"):
            yield rows.unpack_filter(key, payload)

    def sound_filter_rows(self) -> abc.Iterator[FilterRow]:
        """All filters whose rows can be read."""
        for name in self.filter_names():
            try:
                row = self.filter_row(name)
            except DamagedRow:
                continue  # its own handle says so
            if row is not None:
                yield row

    def stage_rows(self, filter_number: int, chain: int | None = None) -> list[StageRow]:
        """Stages of a filter, or of one of its chains, in order."""
        start = rows.stage_key(filter_number, chain or 0)
        prefix = start[: 8 if chain is None else 12]
        return [rows.unpack_stage(key, payload) for key, payload in self._scan("stages", prefix)]

    def stage_row(self, filter_number: int, chain: int, stage: int) -> StageRow | None:
        """One stage."""
        key = rows.stage_key(filter_number, chain, stage)
        payload = self._get("stages", key)
        return None if payload is None else rows.unpack_stage(key, payload)

    def checksums(self, number: int, blocks: int) -> NDArray[np.uint32] | None:
        """Block checksums of a segment, or None when it has none yet or not all."""
        parts = []
        for first in range(0, blocks, CHECKSUMS_PER_ROW):
            key = _BLOCKS_KEY.pack(number, first)
            payload = self._get("blocks", key)
            if payload is None:
                return None
            if len(payload) != 4 * min(CHECKSUMS_PER_ROW, blocks - first):
                raise DamagedRow("blocks", key, f"{len(payload)} bytes for {blocks} blocks")
            parts.append(np.frombuffer(payload, dtype="<u4"))
        return np.concatenate(parts).astype(np.uint32) if parts else np.zeros(0, np.uint32)

    def journal(self, after: int = 0) -> abc.Iterator[JournalRow]:
        """Rows with a sequence greater than `after`, in order."""
        for key, payload in self._scan("journal", start=_NUMBER.pack(after + 1)):
            yield rows.unpack_journal(key, payload)

    def journal_bytes(self) -> int:
        """Space that the journal takes in the catalog."""
        stat = self._transaction.stat(self._tables["journal"])
        pages = stat["leaf_pages"] + stat["branch_pages"] + stat["overflow_pages"]
        return int(pages * stat["psize"])

    def journal_rows(self) -> int:
        """Number of rows in the journal."""
        return int(self._transaction.stat(self._tables["journal"])["entries"])

    def tombstones(self) -> dict[int, str]:
        """Files that may be unlinked, by number."""
        return {
            int.from_bytes(key, "big"): rows.unpack_tombstone(key, payload)
            for key, payload in self._scan("tombstones")
        }

    def note(self, key: bytes) -> bytes | None:
        """One note of a plugin."""
        return self._get("notes", key)

    def note_keys(self) -> list[bytes]:
        """Keys of all notes, sorted."""
        with self._cursor("notes") as cursor:
            return [bytes(key) for key in cursor.iternext(values=False)]

    def _get(self, table: str, key: bytes) -> bytes | None:
        raw = self._transaction.get(key, db=self._tables[table])
        return None if raw is None else rows.unframe(table, key, bytes(raw))

    def _need(self, table: str, key: bytes) -> bytes:
        payload = self._get(table, key)
        if payload is None:
            raise DamagedRow(table, key, "is missing")
        return payload

    def _cursor(self, table: str) -> Any:
        return self._transaction.cursor(db=self._tables[table])

    def _scan(
        self, table: str, prefix: bytes = b"", start: bytes | None = None
    ) -> abc.Iterator[tuple[bytes, bytes]]:
        with self._cursor(table) as cursor:
            begin = prefix if start is None else start
            if not (cursor.set_range(begin) if begin else cursor.first()):
                return
            for key, raw in cursor.iternext():
                if not key.startswith(prefix):
                    return
                yield bytes(key), rows.unframe(table, bytes(key), bytes(raw))


class CatalogChange(CatalogView):
    """A view that can be changed; all of it is committed, or nothing."""

    # The generation that this change raised the catalog to, if it did.
    generation: int | None = None
    # Whether its block was given up, see Catalog.end_left_change.
    is_left = False

    def abort(self) -> None:
        """Undoes it."""
        self._transaction.abort()

    def take_number(self) -> int:
        """A number that no file or filter ever had."""
        counters = self.counters()
        self._put_counters(replace(counters, next_number=counters.next_number + 1))
        return counters.next_number

    def raise_generation(self) -> int:
        """The next generation: readers reload their stages when they see it."""
        counters = self.counters()
        self.generation = counters.generation + 1
        self._put_counters(replace(counters, generation=self.generation))
        return self.generation

    def renew_incarnation(self) -> str:
        """Says that this is another copy of the store than the one it was made from."""
        identity = replace(self.identity(), incarnation=uuid.uuid4().hex)
        self._put("store", b"identity", rows.pack_identity(identity))
        return identity.incarnation

    def raise_next_number(self, least: int) -> None:
        """Makes sure that numbers below `least` are never given out again."""
        counters = self.counters()
        self._put_counters(replace(counters, next_number=max(least, counters.next_number)))

    def delete_damaged_journal(self) -> list[int]:
        """Deletes journal rows that cannot be read, and says which."""
        gone = []
        with self._cursor("journal") as cursor:
            for key, raw in cursor.iternext():
                try:
                    rows.unpack_journal(key, rows.unframe("journal", key, bytes(raw)))
                except DamagedRow:
                    gone.append(int.from_bytes(key, "big"))
        self.delete_journal(gone)
        return gone

    def put_filter(self, row: FilterRow) -> Self:
        """Inserts or replaces a filter."""
        return self._put("filters", row.name.encode(), rows.pack_filter(row))

    def delete_filter(self, name: str) -> None:
        """Removes a filter's row."""
        self._delete("filters", name.encode())

    def put_stage(self, row: StageRow) -> Self:
        """Inserts or replaces a stage."""
        key = rows.stage_key(row.filter_number, row.chain, row.stage)
        return self._put("stages", key, rows.pack_stage(row))

    def update_filter(self, name: str, **changes: Any) -> FilterRow:
        """Changes fields of a filter's row as it is now. Raises FilterNotFound."""
        row = self.filter_row(name)
        if row is None:
            raise FilterNotFound(name)
        row = replace(row, **changes)
        self.put_filter(row)
        return row

    def update_stage(self, known: StageRow, **changes: Any) -> StageRow:
        """Changes fields of a stage's row as it is now; `known` only says which."""
        row = self.stage_row(known.filter_number, known.chain, known.stage)
        if row is None or row.number != known.number:
            key = rows.stage_key(known.filter_number, known.chain, known.stage)
            raise DamagedRow("stages", key, f"is not segment {known.number} any more")
        row = replace(row, **changes)
        self.put_stage(row)
        return row

    def delete_stage(self, row: StageRow) -> None:
        """Removes a stage's row and its block checksums."""
        self._delete("stages", rows.stage_key(row.filter_number, row.chain, row.stage))
        prefix = _NUMBER.pack(row.number)
        with self._cursor("blocks") as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                found = cursor.delete()

    def put_checksums(self, number: int, checksums: NDArray[np.uint32]) -> None:
        """Replaces all block checksums of a segment."""
        for first in range(0, len(checksums), CHECKSUMS_PER_ROW):
            part = checksums[first : first + CHECKSUMS_PER_ROW].astype("<u4").tobytes()
            self._put("blocks", _BLOCKS_KEY.pack(number, first), part)

    def append_journal(self, row: JournalRow) -> None:
        """Inserts a row under its sequence, which must be greater than all others."""
        self._put("journal", _NUMBER.pack(row.sequence), rows.pack_journal(row))

    def delete_journal(self, sequences: abc.Iterable[int]) -> None:
        """Deletes these rows; sequences go on where they were."""
        counters = self.counters()
        self._put_counters(counters)
        for sequence in sequences:
            self._delete("journal", _NUMBER.pack(sequence))

    def put_tombstone(self, number: int, file_name: str, reason: str) -> None:
        """Allows a file to be unlinked."""
        payload = rows.pack_tombstone(file_name, reason)
        self._put("tombstones", _NUMBER.pack(number), payload)

    def delete_tombstone(self, number: int) -> None:
        """The file is gone, or has become a stage."""
        self._delete("tombstones", _NUMBER.pack(number))

    def put_note(self, key: bytes, value: bytes) -> None:
        """Inserts or replaces a note."""
        self._put("notes", key, value)

    def delete_note(self, key: bytes) -> None:
        """Removes a note."""
        self._delete("notes", key)

    def _put_counters(self, counters: Counters) -> None:
        self._put("store", b"counters", rows.pack_counters(counters))

    def _put(self, table: str, key: bytes, payload: bytes) -> Self:
        self._transaction.put(key, rows.frame(table, key, payload), db=self._tables[table])
        return self

    def _delete(self, table: str, key: bytes) -> None:
        self._transaction.delete(key, db=self._tables[table])
