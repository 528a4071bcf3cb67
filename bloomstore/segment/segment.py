"""The file of one stage: made once, mapped, synced.

In: a header and a folder, out: a Segment with the vector as a numpy array. `make_segment` is step
2 of every new file (storage order): create, allocate, write the header, sync the file and its
folder, under a lock on the file itself that says "unfinished, leave it alone".

The last page holds words that change with every add without being durable: how many bits are set
and how many keys were new. They are hints of the present boot for durability "process"; the
catalog holds the truth of the last checkpoint.

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
from bloomstore.errors import DamagedFile
from bloomstore.segment.blocks import damaged_blocks
from bloomstore.segment.header import (
    BLOCK_BYTES,
    HEADER_BYTES,
    SegmentHeader,
    pack_header,
    unpack_header,
)
from bloomstore.segment.mapping import (
    MappedFile,
    allocate,
    drop_cached_pages,
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
WORDS = 8


class Segment:
    """A mapped segment file.

    `unverified` are blocks of a sealed segment whose checksums nobody has looked at yet: they must
    be verified before a "no" is taken from them. `damaged` are those that failed.
    """

    __slots__ = (
        "__weakref__",
        "_checksums",
        "_file",
        "_verifying",
        "damaged",
        "header",
        "path",
        "unverified",
        "vector",
        "words",
    )

    def __init__(self, header: SegmentHeader, file: MappedFile) -> None:
        self.header = header
        self.path = file.path
        self._file = file
        self._checksums: NDArray[np.uint32] | None = None
        self.unverified: set[int] = set()
        self.damaged: set[int] = set()
        # Protects `vector`, `unverified` and `damaged` while blocks are verified. Who asks inside,
        # in a signal handler or one of logging, verifies the same blocks once more.
        self._verifying = threading.RLock()
        self.vector: NDArray[np.uint8] = file.array(HEADER_BYTES, header.spec.geometry.vector_bytes)
        self.words = file.words(header.words_offset, WORDS)

    @property
    def is_writable(self) -> bool:
        """Whether the mapping may be written to."""
        return self._file.writable

    def expect(self, checksums: NDArray[np.uint32]) -> None:
        """From now on every block counts as unverified until it has its checksum."""
        self._checksums = checksums
        self.unverified = set(range(self.header.blocks))

    def verify(self, blocks: abc.Iterable[int]) -> None:
        """Verifies these blocks once; a damaged one reports every key from then on.

        Damage is kept out of the file: a private copy of the mapping gets ones in its place.
        """
        with self._verifying:
            asked = self.unverified.intersection(blocks)
            if not asked or self._checksums is None:
                return
            found, _ = damaged_blocks(self.header, self.vector, self._checksums, asked)
            if found:
                log.warning("%s: blocks %s fail their checksums and answer maybe", self.path, found)
                try:
                    copy = self._file.private_copy(HEADER_BYTES, len(self.vector))
                except OSError:  # unlinked meanwhile, or no descriptor left
                    copy = np.array(self.vector)
                for block in self.damaged.union(found):
                    copy[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = 0xFF
                self.vector = copy
                self.damaged.update(found)
            self.unverified -= asked

    def block(self, block: int) -> NDArray[np.uint8]:
        """The bytes of one block."""
        return self.vector[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]

    def end_writing(self) -> None:
        """Gives up the descriptor of a segment that was sealed; its mapping stays."""
        self._file.end_writing()

    def sync(self) -> None:
        """Makes all bits durable. Raises OSError once and for all: never call it again then."""
        self._file.sync_memory()
        crash_point("checkpoint: memory synced")
        self._file.sync_file()
        crash_point("checkpoint: file synced")


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
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        crash_point("new file: created")
        allocate(descriptor, header.file_bytes)
        os.pwrite(descriptor, pack_header(header), 0)
        if vector is not None:
            write_all(descriptor, vector, HEADER_BYTES)
            words = np.array(counts, dtype=np.uint64).view(np.uint8)
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
    descriptor = os.open(path, flags | os.O_CLOEXEC)
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
