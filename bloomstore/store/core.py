"""What all parts of an open store share: folder, catalog, lock, mapped segments.

A core belongs to one process: a forked child makes its own. Handles and writers reach everything
through it; it does nothing by itself but open and close.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import hashlib
import logging
import os
import weakref

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.catalog import Catalog, CatalogChange, CatalogView
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.crash import crash_point
from bloomstore.errors import BloomStoreError, StoreFailed
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.blocks import damaged_blocks, touched_blocks
from bloomstore.segment.segment import Segment, open_segment
from bloomstore.store.folder import Folder, boot_id
from bloomstore.store.lock import GENERATION, Users, WriterLock
from bloomstore.store.options import StoreOptions

log = logging.getLogger("bloomstore")

# Active stages up to this size are verified when they are first used: 6 ms at 11 GB/s.
VERIFIED_BYTES = 64 << 20
# How the reason of a stage begins that a failed sync has poisoned; `repair` can write it again.
SYNC_FAILED = "a sync failed"


class Core:
    """The open files of one store in one process."""

    def __init__(self, folder: Folder, options: StoreOptions) -> None:
        self.folder = folder
        self.options = options
        self.process = os.getpid()
        self.is_closed = False
        self.boot = boot_id()
        digest = hashlib.blake2b(self.boot.encode(), digest_size=8).digest()
        self.boot_word = int.from_bytes(digest, "little")
        self.catalog = Catalog(folder.catalog, read_only=options.read_only)
        try:
            with self.catalog.read() as view:
                self.store_id = view.identity().store_id
            self.users = Users(folder.users)
            self.lock = WriterLock(
                folder.lock, read_only=options.read_only, seconds=options.lock_seconds
            )
        except BaseException:
            self.catalog.close()
            raise
        self.words = self.lock.words
        self._segments: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        # Counts of stages as this process last knew them, true while the word `applied` is
        # `counts_sequence`; only the holder of the writer lock looks at them.
        self.counts: dict[int, tuple[int, int]] = {}
        self.counts_sequence = -1
        # In which tenure of the lock dead holders' work was finished, and filters marked dirty.
        self.finished_tenure = -1
        self.dirty_tenure: dict[int, int] = {}
        # Why no answer of this store can be certain, whatever its files say.
        self.doubt: str | None = None
        # Whether this process verifies active stages (the first one to open the store does), and
        # what it found, by segment number.
        self.verifies_active = False
        self._active_damage: dict[int, list[int]] = {}
        self._names: dict[int, str] = {}

    @contextlib.contextmanager
    def change(self) -> abc.Iterator[CatalogChange]:
        """A durable change of the catalog; then the generation word, if it raised the generation.

        Only under the writer lock. A process that dies in between leaves the word behind; the next
        holder of the lock sets it (recovery.finish).
        """
        with self.catalog.write() as change:
            yield change
        if change.generation is not None:
            crash_point("generation: committed")
            self.words[GENERATION] = change.generation
            crash_point("generation: word set")

    def segment(self, row: StageRow, *, writable: bool) -> Segment:
        """The mapped segment of a stage. Raises when it is not what the catalog means."""
        segment = self._segments.get(row.number)
        if segment is None or (writable and not segment.is_writable):
            header = row.header(self.store_id)
            path = self.folder.segments / header.file_name
            segment = open_segment(path, header, writable=writable)
            if row.sealed:
                segment.expect(self._checksums(row))
            self._segments[row.number] = segment
        return segment

    def _checksums(self, row: StageRow) -> NDArray[np.uint32]:
        blocks = row.header(self.store_id).blocks
        with self.catalog.read() as view:
            checksums = view.checksums(row.number, blocks)
        if checksums is None:
            raise StoreFailed(f"block checksums of segment {row.number} are missing")
        return checksums

    def stage(self, row: StageRow) -> Stage:
        """A living stage; one that cannot be mapped or was poisoned carries its doubt."""
        writable = not (self.options.read_only or row.sealed)
        try:
            segment = self.segment(row, writable=writable)
        except OSError as error:
            return Stage(row, None, f"stage {row.stage}: {error.strerror}: {error.filename}")
        except BloomStoreError as error:
            return Stage(row, None, f"stage {row.stage}: {error}")
        if row.poisoned is not None:
            return Stage(row, segment, f"stage {row.stage}: {row.poisoned}")
        damaged = [] if row.sealed else self.damage_of(row, segment)
        if damaged:
            return Stage(row, segment, f"stage {row.stage}: damaged blocks {damaged}")
        return Stage(row, segment)

    def chain(self, rows: list[StageRow]) -> Chain:
        """The chain of these stages; a gap in their numbers is a doubt."""
        stages = [self.stage(row) for row in rows]
        for expected, stage in enumerate(stages):
            if stage.row.stage != expected:
                missing = Stage(stage.row, stage.segment, f"stage {expected} has no row")
                stages[expected] = missing
                break
        return Chain(stages)

    def damage_of(self, row: StageRow, segment: Segment) -> list[int]:
        """Damaged blocks of an active stage, looked at once by the first process to open the store.

        Vectors beyond 64 MB are left to `check`. What looks damaged is looked at again under the
        writer lock before every process is told.
        """
        known = self._active_damage.get(row.number)
        if known is not None:
            return known
        if not self.verifies_active or row.spec.geometry.vector_bytes > VERIFIED_BYTES:
            return []
        damaged = self._look_for_damage(row, segment)
        if damaged and not self.options.read_only:
            with self.lock.hold():
                damaged = self._look_for_damage(row, segment)
                if damaged:
                    self.poison(row, f"damaged blocks {damaged}")
        if damaged:
            log.warning("%s: blocks %s fail their checksums", segment.path, damaged)
        if damaged is not None:
            self._active_damage[row.number] = damaged
        return damaged or []

    def _look_for_damage(self, row: StageRow, segment: Segment) -> list[int] | None:
        """Damaged blocks, or None when it cannot be said: dirty, not recovered, or changing.

        Blocks that did not change since the last checkpoint have checksums. The others must at
        least not change the number of set bits, which the journal knows exactly: an odd number of
        flips, or a zeroed run, shows.
        """
        before = self._moment(row)
        _, dirty, current = before
        if dirty is not None or current is None or current.sealed:
            return None
        with self.catalog.read() as view:
            entries = [entry for entry in view.journal() if entry.number == row.number]
            checksums = view.checksums(row.number, segment.header.blocks)
        geometry = row.spec.geometry
        is_applied = all(
            kernels.find([segment.vector], [geometry], entry.prints).all() for entry in entries
        )
        if not is_applied:
            return None
        if checksums is None:  # every stage has them from its first day
            return list(range(segment.header.blocks))
        touched = touched_blocks(geometry, [entry.prints for entry in entries])
        asked = [block for block in range(segment.header.blocks) if block not in touched]
        damaged = damaged_blocks(segment.header, segment.vector, checksums, asked)
        expected = entries[-1].set_bits if entries else current.set_bits
        if not damaged and kernels.count_bits(segment.vector) != expected:
            damaged = sorted(touched) or asked
        return damaged if self._moment(row) == before else None

    def _moment(self, row: StageRow) -> tuple[int, str | None, StageRow | None]:
        """Changes whenever somebody changes a bit of this stage."""
        with self.catalog.read() as view:
            sequence = view.counters().sequence
            owner = self.owner(view, row.filter_number)
            current = view.stage_row(row.filter_number, row.chain, row.stage)
        return sequence, None if owner is None else owner.dirty_boot, current

    def owner(self, view: CatalogView, number: int) -> FilterRow | None:
        """The filter with this number. Names are remembered: reading all rows takes long."""
        found = view.filter_row(self._names[number]) if number in self._names else None
        if found is None or found.number != number:
            self._names = {row.number: row.name for row in view.filter_rows()}
            found = view.filter_row(self._names[number]) if number in self._names else None
        return found

    def forget(self, number: int) -> None:
        """What was known of a segment is not true any more."""
        self._segments.pop(number, None)
        self._active_damage.pop(number, None)
        self.counts.pop(number, None)

    def poison(self, row: StageRow, reason: str) -> None:
        """Makes a stage answer "maybe" in every process from now on."""
        with self.lock.hold(), self.change() as change:
            change.update_stage(row, poisoned=reason)
            change.raise_generation()

    def abandon(self) -> None:
        """In a forked child: closes what belongs to the parent, without unlocking anything."""
        if not self.is_closed:
            self.is_closed = True
            self.catalog.abandon()
            self.lock.abandon()
            self.users.close()

    def close(self) -> None:
        """Closes files; mappings end with their last reference."""
        if not self.is_closed:
            self.is_closed = True
            self.lock.close()
            self.catalog.close()
            self.users.close()
