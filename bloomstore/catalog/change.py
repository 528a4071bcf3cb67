"""A change of the catalog: a view with rows put and deleted, committed as a whole or not at all.

In: rows, out: bytes in a transaction of LMDB. Changes are made by Catalog (catalog.py), under the
writer lock; they end with the block that they were made for.

Not here: reading (view.py), transactions (catalog.py), the bytes of rows (rows.py).
"""

from __future__ import annotations

import collections.abc as abc
import uuid
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog import frames, journal_rows, rows
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import Counters, FilterRow, StageRow
from bloomstore.catalog.view import BLOCKS_KEY, CHECKSUMS_PER_ROW, NUMBER_KEY, CatalogView
from bloomstore.errors import DamagedRow, FilterNotFound, StoreFailed


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
        """Makes the change durable."""
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
        """Gives the store a new incarnation: it is a copy of the one it was made from."""
        identity = replace(self.identity(), incarnation=uuid.uuid4().hex)
        self._put("store", b"identity", rows.pack_identity(identity))
        return identity.incarnation

    def set_format(self, number: int) -> None:
        """Sets the format that the catalog has from now on."""
        identity = replace(self.identity(), format=number)
        self._put("store", b"identity", rows.pack_identity(identity))

    def set_forgotten_below(self, number: int) -> None:
        """Sets the number below which files may be of filters that this catalog has forgotten."""
        identity = replace(self.identity(), forgotten_below=number)
        self._put("store", b"identity", rows.pack_identity(identity))

    def rows(self, table: str) -> list[tuple[bytes, bytes]]:
        """Keys and payloads of a table, not unpacked: for upgrades."""
        return list(self._scan(table))

    def sound_rows(self, table: str) -> list[tuple[bytes, bytes]]:
        """The same, without the rows that cannot be read: these stay as they are."""
        damaged = {error.key for error in self.damaged_rows(table)}
        keys = [key for key in self._keys(table) if key not in damaged]
        return [(key, self._need(table, key)) for key in keys]

    def put_row(self, table: str, key: bytes, payload: bytes) -> None:
        """Inserts or replaces a row by its payload: for upgrades."""
        self._put(table, key, payload)

    def raise_next_number(self, least: int) -> None:
        """Makes sure that numbers below `least` are never given out again."""
        counters = self.counters()
        self._put_counters(replace(counters, next_number=max(least, counters.next_number)))

    def delete_damaged_journal(self) -> list[int]:
        """Deletes journal rows that cannot be read; returns their sequences."""
        gone = []
        with self._cursor("journal") as cursor:
            for key, raw in cursor.iternext():
                try:
                    journal_rows.unpack_journal(key, frames.unframe("journal", key, bytes(raw)))
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
        prefix = NUMBER_KEY.pack(row.number)
        with self._cursor("blocks") as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                found = cursor.delete()

    def put_checksums(self, number: int, checksums: NDArray[np.uint32]) -> None:
        """Replaces all block checksums of a segment."""
        for first in range(0, len(checksums), CHECKSUMS_PER_ROW):
            part = checksums[first : first + CHECKSUMS_PER_ROW].astype("<u4").tobytes()
            self._put("blocks", BLOCKS_KEY.pack(number, first), part)

    def append_journal(self, row: JournalRow) -> None:
        """Inserts a row under its sequence, which must be greater than all others."""
        key = NUMBER_KEY.pack(row.sequence)
        self._transaction.put(key, journal_rows.frame_journal(key, row), db=self._tables["journal"])

    def delete_journal(self, sequences: abc.Iterable[int]) -> None:
        """Deletes these rows; their sequences are never used again."""
        counters = self.counters()
        self._put_counters(counters)
        for sequence in sequences:
            self._delete("journal", NUMBER_KEY.pack(sequence))

    def put_tombstone(self, number: int, file_name: str, reason: str) -> None:
        """Allows a file to be unlinked."""
        payload = rows.pack_tombstone(file_name, reason)
        self._put("tombstones", NUMBER_KEY.pack(number), payload)

    def delete_tombstone(self, number: int) -> None:
        """Removes the tombstone: the file is gone, or has become a stage."""
        self._delete("tombstones", NUMBER_KEY.pack(number))

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
        self._transaction.put(key, frames.frame(table, key, payload), db=self._tables[table])
        return self

    def _delete(self, table: str, key: bytes) -> bool:
        """Deletes a row; returns whether it existed."""
        return bool(self._transaction.delete(key, db=self._tables[table]))
