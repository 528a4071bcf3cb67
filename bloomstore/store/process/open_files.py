"""The open files of a store, shared by all its parts: folder, catalog, lock, mapped segments.

A core belongs to one process: a forked child makes its own. Handles and writers reach everything
through it.

Not here: whether a mapped stage can be trusted (durable/trust.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import hashlib
import logging
import os
import weakref

from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.pages import walk
from bloomstore.catalog.reasons import Reason
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.catalog.view import CatalogView
from bloomstore.catalog.witness import Witness
from bloomstore.crash import crash_point
from bloomstore.errors import BloomStoreError, DamagedFile, StoreFailed
from bloomstore.held import Holding
from bloomstore.segment.mapping import passes
from bloomstore.segment.segment import Segment, open_segment
from bloomstore.store.options import StoreOptions
from bloomstore.store.process.folder import Folder, boot_id
from bloomstore.store.process.place import Place, identity
from bloomstore.store.process.users import Users
from bloomstore.store.process.words import COMMITTED, GENERATION
from bloomstore.store.process.writer_lock import Hold, WriterLock

log = logging.getLogger("bloomstore")


def missing_stages(rows: list[StageRow], count: int) -> str | None:
    """Why these are not all `count` stages of a chain; None if they are."""
    listed = [row.stage for row in rows]
    if listed == list(range(count)) and count:
        return None
    return f"the chain has {count} stages, the catalog lists {listed}"


def missing_of(row: FilterRow, stages: list[StageRow]) -> abc.Iterator[str]:
    """Each stage that a chain of the filter lacks, given all stages that the catalog lists."""
    for chain, count in ((row.live_chain, row.stages), (row.coming_chain, row.coming_stages)):
        of_chain = [stage for stage in stages if stage.chain == chain]
        missing = None if chain is None else missing_stages(of_chain, count)
        if missing is not None:
            yield f"chain {chain}: {missing}"


class Core(Holding):
    """The open files of one store in one process.

    A Holding while it is being opened: an interrupt closes it again. `end(is_done=True)` keeps it.
    """

    def __init__(self, folder: Folder, options: StoreOptions) -> None:
        self.folder = folder
        self.options = options
        self.process = os.getpid()
        self.is_closed = False
        self.boot = boot_id()
        digest = hashlib.blake2b(self.boot.encode(), digest_size=8).digest()
        self.boot_word = int.from_bytes(digest, "little")
        try:
            self.data = identity(folder.data)
        except OSError as error:
            raise DamagedFile(folder.data, 0, f"cannot be read: {error.strerror}") from error
        self.announce()
        try:
            self.users = Users(folder.users, folder.catalog)
            self.lock = WriterLock(
                folder.lock, read_only=options.read_only, seconds=options.lock_seconds
            )
            self.words = self.lock.words
            # The only user checks the file before LMDB maps it; later openers wait for that.
            self.is_alone = self.users.enter(options.lock_seconds)
            if self.is_alone:
                walk(folder.data)
            self.catalog = Catalog(
                folder.catalog,
                read_only=options.read_only,
                map_size=options.map_size,
                witness=Witness(self.words[COMMITTED : COMMITTED + 1]),
            )
            with self.catalog.read() as view:
                self.store_id = view.identity().store_id
        except BaseException:
            self.end()
            raise
        self.place = Place((folder.data, self.data), (folder.lock, self.lock.identity))
        self.lock.loss = self.place.loss
        # Weak references without callbacks, in which an interrupt would be lost.
        self._segments: dict[int, weakref.ref[Segment]] = {}
        self._most_segments = 64
        # Counts of stages as this process last knew them, true while the words `applied` and
        # `generation` are `counts_moment`; only the holder of the writer lock looks at them.
        self.counts: dict[int, tuple[int, int]] = {}
        self.counts_moment: tuple[int, int] | None = None
        # The last commit of an ordinary add, with the sequence and generation that it left.
        self.last_commit: tuple[int, tuple[int, int]] | None = None
        # In which tenure of the lock dead holders' work was finished, and filters marked dirty.
        self.finished_tenure = -1
        self.dirty_tenure: dict[int, int] = {}
        # Why no answer of this store can be certain, even if its files look sound.
        self.doubt: str | None = None
        # How the store was lost, if its path leads elsewhere by now.
        self.loss: str | None = None
        # Segments that this process has examined as a whole, so that no block need be verified.
        self.believed: set[int] = set()
        # Stages with damage that this process has found and not recorded yet, by segment number.
        self.unrecorded: dict[int, StageRow] = {}
        # Names of filters by their numbers, as they were last seen.
        self.names: dict[int, str] = {}

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

    def hold(self, *, keep: bool = False) -> Hold:
        """Holds the writer lock for a block; no change of the catalog outlives it."""
        return self.lock.hold(keep=keep)

    def is_lost(self) -> bool:
        """Whether the path leads elsewhere by now; from then on every answer is "maybe"."""
        return self._has_lost(self.place.loss()) if self.loss is None else True

    def require_place(self) -> None:
        """Raises StoreFailed if the store was removed, moved or replaced."""
        if self.loss is not None or self._has_lost(self.place.loss(of_catalog=True)):
            raise StoreFailed(f"{self.folder.path} takes no changes: {self.loss}")

    def _has_lost(self, loss: str | None) -> bool:
        if loss is not None:
            self.loss = self.doubt = loss
        return loss is not None

    def segment(self, row: StageRow, *, writable: bool) -> Segment:
        """The mapped segment of a stage. Raises if the file is not the one in the catalog."""
        reference = self._segments.get(row.number)
        segment = None if reference is None else reference()
        if segment is None or (writable and not segment.is_writable):
            header = row.header(self.store_id)
            path = self.folder.segments / header.file_name
            segment = open_segment(path, header, writable=writable)
            if row.sealed:
                self.believed.discard(row.number)
            self._remember(row.number, segment)
        return segment

    def _remember(self, number: int, segment: Segment) -> None:
        if len(self._segments) >= self._most_segments:
            alive = {known: of for known, of in self._segments.items() if of() is not None}
            self._segments, self._most_segments = alive, max(64, 2 * len(alive))
        self._segments[number] = weakref.ref(segment)

    def mapped(self, row: StageRow) -> Segment | None:
        """The segment of an active stage for writing, trusted or not; None if it cannot be mapped.

        Raises StoreFailed if that may succeed a moment later.
        """
        try:
            return self.segment(row, writable=not row.sealed)
        except OSError as error:
            if passes(error):
                raise StoreFailed(f"{error.filename}: {error.strerror}") from error
            return None
        except BloomStoreError:
            return None

    def owner(self, view: CatalogView, number: int) -> FilterRow | None:
        """The filter with this number. Names are remembered: reading all rows takes long."""
        found = view.filter_row(self.names[number]) if number in self.names else None
        if found is None or found.number != number:
            self.names = {row.number: row.name for row in view.sound_filter_rows()}
            found = view.filter_row(self.names[number]) if number in self.names else None
        return found

    def forget(self, number: int) -> None:
        """Drops everything remembered of a segment: its file or its row has changed."""
        self._segments.pop(number, None)
        self.believed.discard(number)
        self.counts.pop(number, None)

    def poison(self, row: StageRow, reason: Reason) -> None:
        """Makes a stage answer "maybe" in every process from now on."""
        with self.hold(), self.change() as change:
            change.update_stage(row, poisoned=reason)
            change.raise_generation()

    def abandon(self) -> None:
        """In a forked child: closes the parent's files without unlocking anything."""
        self.is_closed = True
        self.catalog.abandon()
        self.lock.abandon()
        self.users.close()

    def close(self) -> None:
        """Closes files; mappings end with their last reference. Twice is no error."""
        self.is_closed = True
        for part in ("lock", "catalog", "users"):
            if part in vars(self):  # else it was not opened yet
                getattr(self, part).close()

    def give_back(self, *, is_done: bool) -> None:
        """Closes the files, unless opening them has succeeded."""
        if not is_done:
            self.close()
