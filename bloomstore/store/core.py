"""What all parts of an open store share: folder, catalog, lock, mapped segments.

A core belongs to one process: a forked child makes its own. Handles and writers reach everything
through it; it does nothing by itself but open and close.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import hashlib
import os
import weakref

from bloomstore.catalog.catalog import Catalog, CatalogChange
from bloomstore.catalog.rows import StageRow
from bloomstore.crash import crash_point
from bloomstore.errors import BloomStoreError
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.segment import Segment, open_segment
from bloomstore.store.folder import Folder, boot_id
from bloomstore.store.lock import GENERATION, Users, WriterLock
from bloomstore.store.options import StoreOptions


class Core:
    """The open files of one store in one process."""

    def __init__(self, folder: Folder, options: StoreOptions) -> None:
        self.folder = folder
        self.options = options
        self.process = os.getpid()
        self.boot = boot_id()
        digest = hashlib.blake2b(self.boot.encode(), digest_size=8).digest()
        self.boot_word = int.from_bytes(digest, "little")
        self.catalog = Catalog(folder.catalog, read_only=options.read_only)
        try:
            with self.catalog.read() as view:
                self.store_id = view.store_id()
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
            self._segments[row.number] = segment
        return segment

    def stage(self, row: StageRow) -> Stage:
        """A living stage; one that cannot be mapped or was poisoned carries its doubt."""
        writable = not (self.options.read_only or row.sealed)
        try:
            segment = self.segment(row, writable=writable)
        except (BloomStoreError, OSError) as error:
            return Stage(row, None, f"stage {row.stage}: {error}")
        if row.poisoned is not None:
            return Stage(row, segment, f"stage {row.stage}: {row.poisoned}")
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

    def close(self) -> None:
        """Closes files; mappings end with their last reference."""
        self.catalog.close()
        self.lock.close()
        self.users.close()
