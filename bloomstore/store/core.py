"""What all parts of an open store share: folder, catalog, lock, mapped segments.

A core belongs to one process: a forked child makes its own. Handles and writers reach everything
through it. Mapping a stage includes the question whether it can be trusted.
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

from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.catalog.view import CatalogChange, CatalogView
from bloomstore.crash import crash_point
from bloomstore.errors import BloomStoreError, StoreFailed, StoreLocked
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.mapping import passes
from bloomstore.segment.segment import READ_WHOLE_BYTES, Segment, open_segment
from bloomstore.store.damage import examine
from bloomstore.store.folder import Folder, boot_id
from bloomstore.store.lock import GENERATION, Users, WriterLock
from bloomstore.store.options import StoreOptions

log = logging.getLogger("bloomstore")

# How the reason of a stage begins that a failed sync has poisoned; `repair` can write it again.
SYNC_FAILED = "a sync failed"
# Likewise when recovery could not map the segment to apply its journal rows.
UNAPPLIED = "its journal rows could not be applied"
# Likewise for blocks that fail their checksums; `repair` sets them to ones.
DAMAGED_BLOCKS = "damaged blocks"


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
        # Counts of stages as this process last knew them, true while the words `applied` and
        # `generation` are `counts_moment`; only the holder of the writer lock looks at them.
        self.counts: dict[int, tuple[int, int]] = {}
        self.counts_moment: tuple[int, int] | None = None
        # The last commit of an ordinary add, with the sequence and generation that it left.
        self.last_commit: tuple[int, tuple[int, int]] | None = None
        # In which tenure of the lock dead holders' work was finished, and filters marked dirty.
        self.finished_tenure = -1
        self.dirty_tenure: dict[int, int] = {}
        # Why no answer of this store can be certain, whatever its files say.
        self.doubt: str | None = None
        # Active segments that this process has examined and found sound.
        self._sound: set[int] = set()
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

    @contextlib.contextmanager
    def hold(self, *, keep: bool = False) -> abc.Iterator[None]:
        """Holds the writer lock; no change of the catalog outlives it."""
        with self.lock.hold(keep=keep):
            try:
                yield
            finally:
                if self.lock.is_outermost:
                    self.catalog.end_left_change()

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

    def mapped(self, row: StageRow) -> Segment | None:
        """The segment of an active stage for writing, trusted or not; None if it cannot be had.

        Raises StoreFailed where that may be different in a moment.
        """
        try:
            return self.segment(row, writable=not row.sealed)
        except OSError as error:
            if passes(error):
                raise StoreFailed(f"{error.filename}: {error.strerror}") from error
            return None
        except BloomStoreError:
            return None

    def stage(self, row: StageRow) -> Stage:
        """A living stage; one that cannot be mapped or was poisoned carries its doubt."""
        writable = not (self.options.read_only or row.sealed)
        try:
            segment = self.segment(row, writable=writable)
        except OSError as error:
            doubt = f"stage {row.stage}: {error.strerror}: {error.filename}"
            return Stage(row, None, doubt, passes=passes(error))
        except BloomStoreError as error:
            return Stage(row, None, f"stage {row.stage}: {error}")
        if row.poisoned is not None:
            return Stage(row, segment, f"stage {row.stage}: {row.poisoned}")
        damaged = () if row.sealed else self.damaged_blocks(row, segment)
        if damaged:
            return Stage(row, segment, f"stage {row.stage}: {DAMAGED_BLOCKS} {list(damaged)}")
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

    def damaged_blocks(self, row: StageRow, segment: Segment) -> tuple[int, ...]:
        """Damaged blocks of an active stage; each process looks once, at its first use.

        Vectors beyond 64 MB are left to `check`. What looks damaged is looked at again under the
        writer lock, and then every process is told.
        """
        if row.number in self._sound or row.spec.geometry.vector_bytes > READ_WHOLE_BYTES:
            return ()
        found = examine(self, row, segment)
        if found is None or not (found.blocks or found.unapplied):
            if found is not None:
                self._sound.add(row.number)
            return ()
        if found.blocks and not self.options.read_only and self.doubt is None:
            with contextlib.suppress(StoreLocked), self.hold():
                found = examine(self, row, segment)
                if found is not None and found.blocks:
                    log.warning("%s: blocks %s are damaged", segment.path, found.blocks)
                    self.poison(row, f"{DAMAGED_BLOCKS} {list(found.blocks)}")
        return found.blocks if found is not None else ()

    def owner(self, view: CatalogView, number: int) -> FilterRow | None:
        """The filter with this number. Names are remembered: reading all rows takes long."""
        found = view.filter_row(self._names[number]) if number in self._names else None
        if found is None or found.number != number:
            self._names = {row.number: row.name for row in view.sound_filter_rows()}
            found = view.filter_row(self._names[number]) if number in self._names else None
        return found

    def forget(self, number: int) -> None:
        """What was known of a segment is not true any more."""
        self._segments.pop(number, None)
        self._sound.discard(number)
        self.counts.pop(number, None)

    def poison(self, row: StageRow, reason: str) -> None:
        """Makes a stage answer "maybe" in every process from now on."""
        with self.hold(), self.change() as change:
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
