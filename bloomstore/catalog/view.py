"""What the catalog says at one moment, and a change of it, as typed rows.

In: a transaction of LMDB, out: rows. Views and changes are made by Catalog (catalog.py), which also
lists the tables; they end with the block that they were made for.

Not here: transactions (catalog.py), the bytes of rows (rows.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import struct
import uuid
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog import rows
from bloomstore.catalog.journal_index import JournalIndex
from bloomstore.catalog.rows import Counters, FilterRow, Identity, JournalRow, StageRow
from bloomstore.errors import DamagedRow, FilterNotFound, StoreFailed

CHECKSUMS_PER_ROW = 1024
_NUMBER = struct.Struct(">Q")
_BLOCKS_KEY = struct.Struct(">QQ")


class CatalogView:
    """What the catalog said at one moment."""

    def __init__(
        self,
        transaction: Any,
        tables: dict[str, Any],
        sound: set[str],
        index: JournalIndex | None = None,
    ) -> None:
        """Without an index, because it shows what was not committed, it reads the whole journal."""
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
                        payload = rows.unframe("filters", bytes(key), bytes(raw))
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
        key = _NUMBER.pack(sequence)
        return rows.unpack_journal(key, self._need("journal", key))

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
        return None if raw is None else rows.unframe(table, key, bytes(raw))

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
                    rows.unframe(table, bytes(key), bytes(raw))
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
                yield bytes(key), rows.unframe(table, bytes(key), bytes(raw))


class CatalogChange(CatalogView):
    """A view that can be changed; all of it is committed, or nothing."""

    # The generation that this change raised the catalog to, if it did.
    generation: int | None = None

    @property
    def number(self) -> int:
        """The number of the commit that this would be: one more than that of the last one."""
        return self._transaction.id()  # type: ignore[no-any-return]

    is_committed = False

    def commit(self) -> None:
        """Makes it durable."""
        self._transaction.commit()
        self.is_committed = True

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

    def set_format(self, number: int) -> None:
        """Says which format the catalog has from now on."""
        identity = replace(self.identity(), format=number)
        self._put("store", b"identity", rows.pack_identity(identity))

    def set_forgotten_below(self, number: int) -> None:
        """Says up to which number files may be of filters that this catalog has forgotten."""
        identity = replace(self.identity(), forgotten_below=number)
        self._put("store", b"identity", rows.pack_identity(identity))

    def rows(self, table: str) -> list[tuple[bytes, bytes]]:
        """Keys and payloads of a table, whatever they mean: for upgrades."""
        return list(self._scan(table))

    def sound_rows(self, table: str) -> list[tuple[bytes, bytes]]:
        """The same, without the rows that cannot be read: these stay as they are."""
        damaged = {error.key for error in self.damaged_rows(table)}
        keys = [key for key in self._keys(table) if key not in damaged]
        return [(key, self._need(table, key)) for key in keys]

    def put_row(self, table: str, key: bytes, payload: bytes) -> None:
        """Inserts or replaces a row, whatever it means: for upgrades."""
        self._put(table, key, payload)

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
        """Removes a filter's row, also one whose key is no text any more (see filter_names)."""
        if not self._delete("filters", name.encode()):
            for key in self._keys("filters"):
                if key.decode(errors="replace") == name:
                    self._delete("filters", key)

    def put_stage(self, row: StageRow) -> Self:
        """Inserts a stage. Raises StoreFailed if there is one in its place: it may have keys."""
        present = self.stage_row(row.filter_number, row.chain, row.stage)
        if present is not None:
            raise StoreFailed(
                f"filter {row.filter_number} has a stage {row.stage} of chain {row.chain} already,"
                f" segment {present.number}: segment {row.number} cannot take its place"
            )
        return self._put_stage(row)

    def update_filter(self, name: str, **changes: Any) -> FilterRow:
        """Changes fields of a filter's row as it is now. Raises FilterNotFound."""
        row = self.filter_row(name)
        if row is None:
            raise FilterNotFound(name)
        row = replace(row, **changes)
        self.put_filter(row)
        return row

    def add_stage(self, name: str, row: StageRow) -> None:
        """Puts the next stage of a chain of this filter. Raises StoreFailed if it is another's."""
        owner = self.update_filter(name)
        is_live = row.chain == owner.live_chain
        count = owner.stages if is_live else owner.coming_stages
        if row.stage != count:
            what = f"filter {name!r}: chain {row.chain} has {count} stages"
            raise StoreFailed(f"{what}, its next one cannot be stage {row.stage}")
        self.put_stage(row)
        self.update_filter(name, **{"stages" if is_live else "coming_stages": count + 1})

    def update_stage(self, known: StageRow, **changes: Any) -> StageRow:
        """Changes fields of a stage's row as it is now; `known` only says which."""
        row = self.stage_row(known.filter_number, known.chain, known.stage)
        if row is None or row.number != known.number:
            key = rows.stage_key(known.filter_number, known.chain, known.stage)
            raise DamagedRow("stages", key, f"is not segment {known.number} any more")
        row = replace(row, **changes)
        self._put_stage(row)
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
        key = _NUMBER.pack(row.sequence)
        self._transaction.put(key, rows.frame_journal(key, row), db=self._tables["journal"])

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

    def _put_stage(self, row: StageRow) -> Self:
        key = rows.stage_key(row.filter_number, row.chain, row.stage)
        return self._put("stages", key, rows.pack_stage(row))

    def _put_counters(self, counters: Counters) -> None:
        self._put("store", b"counters", rows.pack_counters(counters))

    def _put(self, table: str, key: bytes, payload: bytes) -> Self:
        self._transaction.put(key, rows.frame(table, key, payload), db=self._tables[table])
        return self

    def _delete(self, table: str, key: bytes) -> bool:
        """Whether there was one."""
        return bool(self._transaction.delete(key, db=self._tables[table]))
