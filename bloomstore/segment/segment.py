"""The file of one stage: made once, mapped, synced.

In: a header and a folder, out: a Segment with the vector as a numpy array. `make_segment` is step
2 of every new file (store/durable/stage_files.py): create, allocate, write the header, sync the
file and its folder, under a lock on the file itself that says "unfinished, leave it alone".

The last page holds words that change with every add without being durable: how many bits are set
and how many keys were new; and a flag for each block, set before a bit of it. They are hints of the
present boot for durability "process"; the catalog holds the truth of the last checkpoint.

Not here: the catalog's rows (catalog), when a file may be unlinked (store).
"""

from __future__ import annotations

import collections.abc as abc
import fcntl
import logging
import os
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bloomstore.crash import crash_point
from bloomstore.errors import DamagedFile, StoreFailed
from bloomstore.segment.blocks import damaged_blocks, fill_blocks, joined_ranges
from bloomstore.segment.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    PAGE_BYTES,
    WORDS_BYTES,
    SegmentHeader,
    pack_header,
    unpack_header,
)
from bloomstore.segment.mapping import (
    MappedFile,
    allocate,
    drop_cached_pages,
    open_file,
    passes,
    sync_descriptor,
    sync_directory,
    write_all,
)

log = logging.getLogger("bloomstore")

# Vectors up to this size are read from start to end when they are first used (6 ms at 11 GB/s), so
# the kernel may read ahead and keep their pages in large units. With MADV_RANDOM and single pages a
# cold vector of 12 MB took 345 ms instead of 8, a cached one 0.8 ms more for faults. The price:
# a changed bit is written back with its unit; 100 bits of 60 MB wrote 27 MB in 12 ms instead of
# 0.4 MB in 6 ms, 100 bits of 12 MB the same as before.
READ_WHOLE_BYTES = 64 << 20

WORD_SET_BITS = 0
WORD_KEYS = 1
WORD_FLAGS = 2  # 1 once the flags say which blocks have changed since their checksums were noted


class Segment:
    """A mapped segment file.

    shared: the bits in the file, as every process sees them; keys are added here. vector:
    the bits to ask, the same ones unless a damaged block had to be hidden from this process.
    damaged: blocks that were found damaged here; they report every key.
    """

    __slots__ = (
        "__weakref__",
        "_checksums",
        "_cursor",
        "_file",
        "_judge",
        "_verifying",
        "_waiting",
        "damaged",
        "flag_shift",
        "flags",
        "header",
        "is_blind",
        "path",
        "shared",
        "unverified",
        "vector",
        "words",
    )

    def __init__(self, header: SegmentHeader, file: MappedFile) -> None:
        self.header = header
        self.path = file.path
        self._file = file
        self._judge: Judge | None = None
        self._checksums: NDArray[np.uint32] | None = None
        self._waiting: NDArray[np.bool_] = np.zeros(0, np.bool_)  # blocks not verified yet
        self._cursor = 0  # no block before this one waits
        self.unverified = 0  # how many wait
        self.damaged: set[int] = set()
        self.is_blind = False  # a damaged block could not be hidden: no "no" may be believed
        # Protects all of these while blocks are verified. A lookup inside, by a signal handler or a
        # handler of logging, verifies the same blocks once more.
        self._verifying = threading.RLock()
        self.shared: NDArray[np.uint8] = file.array(HEADER_BYTES, header.spec.geometry.vector_bytes)
        self.vector = self.shared
        self.words = file.words(header.words_offset, PAGE_BYTES // 8)
        self.flag_shift = header.flag_shift
        flags = ((8 * len(self.shared) - 1) >> self.flag_shift) + 1
        self.flags = file.array(header.words_offset + WORDS_BYTES, flags)

    @property
    def is_writable(self) -> bool:
        """Whether the mapping may be written to."""
        return self._file.writable

    @property
    def is_expected(self) -> bool:
        """Whether `expect` has given the checksums of the blocks."""
        return self._checksums is not None

    def expect(
        self, checksums: NDArray[np.uint32], changed: abc.Iterable[int], judge: Judge
    ) -> None:
        """From now on a block must have its checksum before a "no" is taken from it.

        Blocks that have changed since have none. `judge` is given the blocks that fail; it hides
        them, or has them set to ones, unless they have changed meanwhile.
        """
        with self._verifying:
            self._checksums, self._judge = checksums, judge
            self._waiting = np.ones(self.header.blocks, np.bool_)
            self._waiting[sorted(changed)] = False
            self._cursor = 0
            self.unverified = int(np.count_nonzero(self._waiting))

    def verify(self, blocks: abc.Iterable[int], more: int = 0) -> None:
        """Verifies those of these blocks that were not verified yet, and `more` others."""
        with self._verifying:
            if not self.unverified or self._checksums is None:
                return
            wanted = np.fromiter(blocks, np.int64)
            asked = set(wanted[self._waiting[wanted]].tolist())
            if more:
                asked.update(self._next(more))
            if not asked:
                return
            if len(self.shared) > READ_WHOLE_BYTES:
                self._read_soon(asked)
            found, _ = damaged_blocks(self.header, self.shared, self._checksums, asked)
            if found and self._judge is not None:
                self._judge(self, found)
            done = sorted(asked)
            self.unverified -= int(np.count_nonzero(self._waiting[done]))
            self._waiting[done] = False

    def _read_soon(self, blocks: set[int]) -> None:
        """Undoes, for these blocks, that a large vector is read page by page."""
        for first, end in joined_ranges(blocks):
            begin, last = first * BLOCK_BYTES, min(end * BLOCK_BYTES, len(self.shared))
            self._file.expect_soon(HEADER_BYTES + begin, last - begin)

    def verify_all(self) -> None:
        """Verifies all blocks that were not verified yet."""
        self.verify((), self.header.blocks)

    def _next(self, count: int) -> list[int]:
        """The first blocks that wait. Looks at each place once only."""
        waiting = self._waiting[self._cursor :]
        found = self._cursor + np.flatnonzero(waiting[: 2 * count + 1024])[:count]
        if len(found) < count:
            found = self._cursor + np.flatnonzero(waiting)[:count]
        if len(found):
            self._cursor = int(found[0])
        return [int(block) for block in found]

    def hide(self, blocks: abc.Iterable[int], *, is_sealed: bool) -> None:
        """Makes damaged blocks report every key, in this process only.

        A private copy of the mapping gets ones in their place. Its other pages show the file, so an
        active stage keeps changing in it. If no such copy can be had, a sealed stage is copied into
        memory instead, and of an active stage no "no" is believed any more.
        """
        with self._verifying:
            self.damaged.update(blocks)
            log.warning("%s: damaged blocks %s answer maybe", self.path, sorted(self.damaged))
            try:
                copy = self._file.private_copy(HEADER_BYTES, len(self.shared))
            except (OSError, DamagedFile):  # it is gone, or no descriptor is left
                if not is_sealed:
                    self.is_blind = True
                    return
                copy = np.array(self.shared)
            fill_blocks(copy, self.damaged)
            self.vector = copy

    def show(self) -> None:
        """Ends `hide`: the blocks are ones in the file now, or were not damaged after all."""
        with self._verifying:
            self.vector = self.shared
            self.damaged = set()
            self.is_blind = False

    def set_ones(self, blocks: abc.Iterable[int]) -> None:
        """Sets all bits of these blocks in the file."""
        fill_blocks(self.shared, blocks)

    def flagged_blocks(self) -> set[int]:
        """Blocks that may have changed since `clear_flags`; all if the flags cannot say it."""
        if not self.words[WORD_FLAGS]:
            return set(range(self.header.blocks))
        size = 1 << (self.flag_shift - self.header.block_shift)
        # A copy: other processes go on setting flags, and numpy raises if they do so here.
        groups = np.flatnonzero(np.array(self.flags)).tolist()
        return {
            block
            for group in groups
            for block in range(group * size, min((group + 1) * size, self.header.blocks))
        }

    def clear_flags(self) -> None:
        """Clears the flags; from now on they say which blocks have changed."""
        self.flags[:] = 0
        self.words[WORD_FLAGS] = 1

    def block(self, block: int) -> NDArray[np.uint8]:
        """The bytes of one block in the file."""
        return self.shared[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]

    def sync(self) -> None:
        """Makes all bits durable. Raises OSError once and for all: never call it again then.

        Raises StoreFailed when it could not begin for want of a descriptor, DamagedFile when the
        file has gone; nothing was tried then.
        """
        try:
            descriptor = self._file.reopen(os.O_RDWR)
        except OSError as error:
            if passes(error):
                raise StoreFailed(f"{self.path}: cannot be synced now: {error.strerror}") from error
            raise DamagedFile(self.path, 0, f"cannot be synced: {error.strerror}") from error
        try:
            self._file.sync_memory()
            crash_point("checkpoint: memory synced")
            sync_descriptor(descriptor)
            crash_point("checkpoint: file synced")
        finally:
            os.close(descriptor)


Judge = abc.Callable[[Segment, list[int]], None]


def make_segment(
    folder: Path,
    header: SegmentHeader,
    vector: NDArray[np.uint8] | None = None,
    counts: tuple[int, int] = (0, 0),
) -> int:
    """Creates the file, durable and with all its disk space, and returns a descriptor on it.

    Its vector is all zeros unless one is given, with its set bits and keys; then it is written
    once, from start to end.

    The descriptor holds an exclusive flock: close it when the catalog has published the file.
    Raises OSError (full disk) and then leaves no file behind.
    """
    path = folder / header.file_name
    descriptor = open_file(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        crash_point("new file: created")
        allocate(descriptor, header.file_bytes)
        os.pwrite(descriptor, pack_header(header), 0)
        if vector is not None:
            write_all(descriptor, vector, HEADER_BYTES)
        words = np.array([*counts, 1], dtype=np.uint64).view(np.uint8)
        write_all(descriptor, words, header.words_offset)
        sync_descriptor(descriptor)
        if vector is not None and len(vector) > READ_WHOLE_BYTES:
            drop_cached_pages(descriptor)
        sync_directory(folder)
        crash_point("new file: synced")
    except BaseException:
        path.unlink()
        os.close(descriptor)
        raise
    return descriptor


def open_segment(path: Path, expected: SegmentHeader, *, writable: bool) -> Segment:
    """Maps an existing segment after checking that it is the one the catalog means.

    Raises DamagedFile, UnsupportedVersion or OSError; the caller answers "maybe" then. A
    descriptor is opened for writing in any case, so that an overlay file system shows readers the
    same file that a writer changes; a file that may only be read is opened for reading.
    """
    flags = os.O_RDWR if writable or os.access(path, os.W_OK) else os.O_RDONLY
    descriptor = open_file(path, flags)
    try:
        length = os.fstat(descriptor).st_size
        header = unpack_header(os.pread(descriptor, HEADER_BYTES, 0), path)
        if header != expected:
            raise DamagedFile(path, 10, f"header says {header}, the catalog says {expected}")
        if length != header.file_bytes:
            what = f"file ends here, expected {header.file_bytes} bytes"
            raise DamagedFile(path, length, what)
    except BaseException:
        os.close(descriptor)
        raise
    file = MappedFile(path, descriptor, length, writable=writable)
    if header.spec.geometry.vector_bytes > READ_WHOLE_BYTES:
        file.expect_random_access()
    return Segment(header, file)


def read_header(path: Path) -> SegmentHeader:
    """The header of a segment file, checked by itself only."""
    with path.open("rb") as file:
        return unpack_header(file.read(HEADER_BYTES), path)
