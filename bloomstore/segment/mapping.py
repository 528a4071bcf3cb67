"""Files on disk and in memory: allocate, map, sync. The only module that imports mmap.

In: descriptors and sizes, out: numpy arrays over shared mappings. A mapping lives as long as any
array over it, so a batch that runs without the GIL never meets an unmapped page.

Invariants
  1. A file that is mapped for writing was allocated in full first: a full disk is an exception
     when the file is made, never a SIGBUS when a bit is set.
  2. `sync` returns only when the device has the bytes. It is never tried again after a failure:
     the kernel may have marked the lost pages clean, and the second call would lie.

Not here: what the bytes mean (header.py, blocks.py), whether a stage may still be trusted (store).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class MappedFile:
    """One file mapped as a whole. Writable mappings keep their descriptor for `sync`."""

    __slots__ = ("_descriptor", "_map", "path", "writable")

    def __init__(self, path: Path, descriptor: int, length: int, *, writable: bool) -> None:
        """Takes over the descriptor, also when mapping fails."""
        self.path = path
        self.writable = writable
        self._descriptor: int | None = descriptor
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            self._map = _map(descriptor, length, access)
        except BaseException:
            self._close_descriptor()
            raise
        if not writable:
            self._close_descriptor()

    def array(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Bytes of the mapping; keeps the mapping alive."""
        return np.frombuffer(self._map, dtype=np.uint8, count=length, offset=offset)

    def words(self, offset: int, count: int) -> memoryview:
        """64-bit words of the mapping in native order: cheap to read one by one."""
        return memoryview(self._map)[offset : offset + 8 * count].cast("Q")

    def private_copy(self, offset: int, length: int) -> NDArray[np.uint8]:
        """A copy-on-write mapping of the same bytes: changes stay in this process."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            copy = _map(descriptor, offset + length, mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        return np.frombuffer(copy, dtype=np.uint8, count=length, offset=offset)

    def expect_random_access(self) -> None:
        """Tells the kernel that a lookup wants one page, not the 32 around it."""
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)

    def sync_memory(self) -> None:
        """Writes dirty pages back (msync). Half of a sync; sync_file is the other half."""
        self._map.flush()

    def sync_file(self) -> None:
        """Makes everything written so far durable (fsync through the first descriptor)."""
        assert self._descriptor is not None, "read-only mappings are never synced"
        sync_descriptor(self._descriptor)

    def end_writing(self) -> None:
        """Closes the descriptor: there is nothing to sync any more."""
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self._close_descriptor()


def _map(descriptor: int, length: int, access: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):  # older versions keep a descriptor of their own per mapping
        return mmap.mmap(descriptor, length, access=access, trackfd=False)
    return mmap.mmap(descriptor, length, access=access)


def allocate(descriptor: int, length: int) -> None:
    """Gives the file its full length and the disk space for it. Raises OSError when full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, length)
        return
    step = 1 << 20  # macOS: write zeros
    for offset in range(0, length, step):
        os.pwrite(descriptor, bytes(min(step, length - offset)), offset)


def write_all(descriptor: int, content: NDArray[np.uint8], offset: int) -> None:
    """Writes a whole array; one call writes at most 2 GiB."""
    written = 0
    while written < len(content):
        piece = content[written : written + (1 << 30)]
        written += os.pwrite(descriptor, piece.data, offset + written)


def drop_cached_pages(descriptor: int) -> None:
    """Frees the page cache of a file that was just written and synced.

    The kernel keeps such pages in large units, and writes a whole unit back for one changed bit:
    2000 single bits in a fresh file of 1.2 GB wrote 1.0 GB, after this 8 MB.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def copy_descriptor(source: int, target: int) -> None:
    """Copies a whole file into an empty one, durably."""
    length = os.fstat(source).st_size
    offset = 0
    while offset < length:
        piece = os.pread(source, min(1 << 20, length - offset), offset)
        if not piece:
            break
        os.pwrite(target, piece, offset)
        offset += len(piece)
    sync_descriptor(target)


def sync_descriptor(descriptor: int) -> None:
    """Makes the file's bytes and length durable."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Makes created, renamed and removed names in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def passes(error: OSError) -> bool:
    """Whether a file that cannot be opened now may be in a moment: nothing is wrong with it."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Makes a folder and those above it, each name durable before the next is made.

    So a crash leaves at most the last name in doubt, and whoever goes on syncs it first. The modes
    of the folders above are the user's own.
    """
    missing: list[Path] = []
    last = path.absolute()
    while not last.exists():
        missing.append(last)
        last = last.parent
    with contextlib.suppress(PermissionError):  # a folder that we may not read has no name of ours
        sync_directory(last.parent)
    for folder in reversed(missing):
        folder.mkdir(mode=mode if folder == missing[0] else 0o777, exist_ok=True)
        sync_directory(folder.parent)
