"""The catalog at one moment, as typed rows.

In: a transaction of LMDB, out: rows. Views are made by Catalog (catalog.py), which also lists the
tables; they end with the block that they were made for.

Not here: changes (change.py), transactions (catalog.py), the bytes of rows (rows.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import struct
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog import frames, journal_rows, rows
from bloomstore.catalog.journal_index import JournalIndex
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import Counters, FilterRow, Identity, StageRow
from bloomstore.errors import DamagedRow

# Keys and sizes of rows. Keys are big-endian, so that rows lie in numeric order.
CHECKSUMS_PER_ROW = 1024
NUMBER_KEY = struct.Struct(">Q")
BLOCKS_KEY = struct.Struct(">QQ")


class CatalogView:
    """A view of the catalog at one moment."""

    def __init__(
        self,
        transaction: Any,
        tables: dict[str, Any],
        sound: set[str],
        index: JournalIndex | None = None,
    ) -> None:
        """Views of uncommitted state have no index, and read the whole journal."""
        self._transaction = transaction
        self._tables = tables
        self._sound = sound  # see Catalog
        self._index = index

    def identity(self) -> Identity:
        """Which store this is."""
        return rows.unpack_identity(self._need("store", b"identity"))

    @property
    def transaction(self) -> int:
        """The number of the last commit that this view shows."""
        return int(self._transaction.id())

    def counters(self) -> Counters:
        """Next number, generation, and the last journal sequence ever used."""
        counters = self._stored_counters()
        sequence, _ = self.moment()
        return counters if sequence == counters.sequence else replace(counters, sequence=sequence)

    def moment(self) -> tuple[int, int]:
        """The last journal sequence ever used, and the generation."""
        counters = self._stored_counters()
        cursor = self._transaction.cursor(db=self._tables["journal"])
        last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
        cursor.close()
        return max(last, counters.sequence), counters.generation

    def _stored_counters(self) -> Counters:
        raw = self._transaction.get(b"counters", db=self._tables["store"])
        if raw is None:
            raise DamagedRow("store", b"counters", "is missing")
        return rows.unframe_counters(bytes(raw))

    def filter_names(self) -> list[str]:
        """All names, sorted by their UTF-8."""
        return [key.decode(errors="replace") for key in self._keys("filters")]

    def has_filter(self, name: str) -> bool:
        """Whether there is a row of this name, readable or not."""
        return self._transaction.get(name.encode(), db=self._tables["filters"]) is not None

    def filter_row(self, name: str) -> FilterRow | None:
        """The filter of this name. Raises DamagedRow also if it may be one that cannot be read."""
        payload = self._find("filters", name.encode())
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

    def dirty_filter_rows(self) -> abc.Iterator[FilterRow]:
        """Filters whose segments are ahead of the catalog, of those whose rows can be read."""
        with self._cursor("filters") as cursor:
            for key, raw in cursor.iternext():
                if rows.CLEAN not in raw:  # to unpack all takes ten times as long
                    with contextlib.suppress(DamagedRow):
                        payload = frames.unframe("filters", bytes(key), bytes(raw))
                        row = rows.unpack_filter(bytes(key), payload)
                        if row.dirty_boot is not None:
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
            key = BLOCKS_KEY.pack(number, first)
            payload = self._get("blocks", key)
            if payload is None:
                return None
            if len(payload) != 4 * min(CHECKSUMS_PER_ROW, blocks - first):
                raise DamagedRow("blocks", key, f"{len(payload)} bytes for {blocks} blocks")
            parts.append(np.frombuffer(payload, dtype="<u4"))
        return np.concatenate(parts).astype(np.uint32) if parts else np.zeros(0, np.uint32)

    def journal(self, after: int = 0) -> abc.Iterator[JournalRow]:
        """Rows with a sequence greater than `after`, in order."""
        for key, payload in self._scan("journal", start=NUMBER_KEY.pack(after + 1)):
            yield journal_rows.unpack_journal(key, payload)

    def journal_of(self, number: int) -> list[JournalRow]:
        """The rows of one segment, in order."""
        if self._index is None:
            return [row for row in self.journal() if row.number == number]
        return [self._journal_row(sequence) for sequence in self._index.sequences(self, number)]

    def last_journal_row(self, number: int) -> JournalRow | None:
        """The last row of one segment, which has its counts."""
        if self._index is None:
            return next(iter(self.journal_of(number)[-1:]), None)
        sequences = self._index.sequences(self, number)
        return self._journal_row(sequences[-1]) if sequences else None

    def journal_count(self, number: int) -> int:
        """How many rows one segment has."""
        if self._index is None:
            return len(self.journal_of(number))
        return len(self._index.sequences(self, number))

    def _journal_row(self, sequence: int) -> JournalRow:
        key = NUMBER_KEY.pack(sequence)
        return journal_rows.unpack_journal(key, self._need("journal", key))

    def journal_bytes(self) -> int:
        """Space that the journal takes in the catalog."""
        return self._bytes("journal")

    def live_bytes(self) -> int:
        """Space that all tables take."""
        return sum(map(self._bytes, self._tables))

    def _bytes(self, table: str) -> int:
        stat = self._transaction.stat(self._tables[table])
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
        """One note of a plugin. Raises DamagedRow also if it may be one that cannot be read."""
        return self._find("notes", key)

    def note_keys(self) -> list[bytes]:
        """Keys of all notes, sorted."""
        return self._keys("notes")

    def _keys(self, table: str) -> list[bytes]:
        with self._cursor(table) as cursor:
            return [bytes(key) for key in cursor.iternext(values=False)]

    def _get(self, table: str, key: bytes) -> bytes | None:
        raw = self._transaction.get(key, db=self._tables[table])
        return None if raw is None else frames.unframe(table, key, bytes(raw))

    def _find(self, table: str, key: bytes) -> bytes | None:
        """The same, for names: one that is missing may be there under a key that was damaged."""
        payload = self._get(table, key)
        if payload is None and table not in self._sound:
            for _ in self._scan(table):
                pass  # each row is checked while it is read
            self._sound.add(table)
        return payload

    def damaged_rows(self, table: str) -> abc.Iterator[DamagedRow]:
        """Rows that fail their checksum."""
        with self._cursor(table) as cursor:
            for key, raw in cursor.iternext():
                try:
                    frames.unframe(table, bytes(key), bytes(raw))
                except DamagedRow as error:
                    yield error

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
                yield bytes(key), frames.unframe(table, bytes(key), bytes(raw))
