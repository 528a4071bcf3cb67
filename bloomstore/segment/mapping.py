"""Files on disk and in memory: allocate, map, sync. The only module that imports mmap.

In: descriptors and sizes, out: numpy arrays over shared mappings. A mapping lives as long as any
array over it, so a batch that runs without the GIL never meets an unmapped page.

Invariants
  1. A file that is mapped for writing was allocated in full first: a full disk is an exception
     when the file is made, never a SIGBUS when a bit is set.
  2. `sync` returns only when the device has the bytes. It is never tried again after a failure:
     the kernel may have marked the lost pages clean, and the second call would lie.
  3. Every file of a store is opened by `open_file`: never through a symbolic link.
  4. A mapping needs no descriptor. An error of writing its pages back is not lost for that: msync
     asks the open file that the mapping keeps, which is older than every store to its pages.

Not here: the meaning of the bytes (header.py, blocks.py), trust in a stage (store).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bloomstore.errors import DamagedFile

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.msync.argtypes = _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value
_MS_SYNC = 0x10 if sys.platform == "darwin" else 4

_NOT_A_FILE = "is not a regular file: put the store's own file here"


def open_file(path: Path, flags: int) -> int:
    """Opens a file of a store. Raises OSError, and DamagedFile if it is anything but a plain file.

    A store may come from elsewhere and have a link to a file of this user, or a pipe without a
    writer, where a file should be: links are not followed, and pipes are not waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            what = "is a symbolic link: put the file itself here, links are never followed"
            raise DamagedFile(path, 0, what) from None
        if error.errno in (errno.EISDIR, errno.ENXIO, errno.ENODEV):
            raise DamagedFile(path, 0, _NOT_A_FILE) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFile(path, 0, _NOT_A_FILE)
    return descriptor


class _Pages:
    """Pages of a file in memory, for as long as anything refers to them.

    By libc: Python's own mmap keeps a descriptor for each mapping before 3.13, and a thousand
    filters would exhaust what a process may have.
    """

    __slots__ = ("__array_interface__", "_address", "_length")

    def __init__(self, descriptor: int, length: int, *, writable: bool, shared: bool) -> None:
        found = os.fstat(descriptor).st_size
        if found < length:  # a page behind the end of a file is SIGBUS
            raise OSError(errno.EINVAL, f"the file has {found} bytes, expected {length}")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        address = _libc.mmap(None, length, protection, flags, descriptor, 0)
        if address in (None, _FAILED):
            _raise_errno()
        self._address = address
        self._length = length
        # The buffer that numpy makes arrays of; they refer to this object.
        self.__array_interface__ = {
            "version": 3,
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, not writable),
        }

    def sync(self) -> None:
        """Writes dirty pages back by msync, through the file that was opened for this mapping."""
        if _libc.msync(self._address, self._length, _MS_SYNC):
            _raise_errno()

    def advise(self, what: int, offset: int = 0, length: int | None = None) -> None:
        """A hint by madvise, for all pages or some of them; nothing depends on it."""
        _libc.madvise(self._address + offset, self._length if length is None else length, what)

    def __del__(self, unmap: Any = _libc.munmap) -> None:
        if hasattr(self, "_address"):
            unmap(self._address, self._length)


def _raise_errno() -> NoReturn:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


class MappedFile:
    """One file mapped as a whole. It keeps no descriptor."""

    __slots__ = ("_identity", "_pages", "path", "writable")

    def __init__(self, path: Path, descriptor: int, length: int, *, writable: bool) -> None:
        """Closes the descriptor, also when mapping fails."""
        self.path = path
        self.writable = writable
        try:
            self._identity = _identity(descriptor)
            self._pages = _Pages(descriptor, length, writable=writable, shared=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)

    def array(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Bytes of the mapping; keeps the mapping alive."""
        return _array(self._pages, offset, length)

    def words(self, offset: int, count: int) -> memoryview:
        """64-bit words of the mapping in native order: cheap to read one by one."""
        return self.array(offset, 8 * count).data.cast("Q")

    def private_copy(self, offset: int, length: int) -> NDArray[np.uint8]:
        """A copy-on-write mapping of the same bytes: changes stay in this process."""
        descriptor = self.reopen(os.O_RDONLY)
        try:
            copy = _Pages(descriptor, offset + length, writable=True, shared=False)
        finally:
            os.close(descriptor)
        return _array(copy, offset, length)

    def expect_random_access(self) -> None:
        """Tells the kernel that a lookup wants one page, not the 32 around it."""
        if hasattr(mmap, "MADV_RANDOM"):
            self._pages.advise(mmap.MADV_RANDOM)

    def expect_soon(self, offset: int, length: int) -> None:
        """Has the kernel read a whole range, which it would otherwise read page by page."""
        if hasattr(mmap, "MADV_WILLNEED"):
            self._pages.advise(mmap.MADV_WILLNEED, offset, length)

    def sync_memory(self) -> None:
        """Writes dirty pages back (msync). Half of a sync; sync_descriptor is the other half."""
        self._pages.sync()

    def reopen(self, flags: int) -> int:
        """A descriptor on the mapped file. Raises OSError, and DamagedFile if it has gone."""
        descriptor = open_file(self.path, flags)
        if _identity(descriptor) != self._identity:
            os.close(descriptor)
            raise DamagedFile(self.path, 0, "is another file than the one that is mapped")
        return descriptor


def _array(pages: _Pages, offset: int, length: int) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = np.asarray(pages)
    return found[offset : offset + length]


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


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

    So a crash leaves at most the last name in doubt, and the next attempt syncs it first. The modes
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


def try_flock(descriptor: int, kind: int) -> bool:
    """Takes an flock without waiting; False when another process has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
