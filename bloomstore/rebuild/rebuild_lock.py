"""One rebuild of a filter at a time: a second one would discard the first one's chain.

The lock is one byte of a file in the store's folder, of which each filter has its own: rebuilds of
different filters run side by side. It belongs to the open file (an OFD lock), so it also keeps
threads apart, and the lock of a killed process ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from bloomstore import Store
from bloomstore.errors import RebuildError
from bloomstore.segment.mapping import open_file

FILE_NAME = "rebuild.lock"


@contextmanager
def only_rebuild(store: Store, name: str) -> Iterator[None]:
    """Inside, no other rebuild of this filter runs. Raises RebuildError if one does."""
    lock = _lock(store, name)
    descriptor = open_file(store.path / FILE_NAME, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        except BlockingIOError:
            raise RebuildError(
                f"filter {name!r} of {store.path} is being rebuilt, by this or another process:"
                " wait until that rebuild has ended"
            ) from None
        yield
    finally:
        os.close(descriptor)


def is_rebuilt(store: Store, name: str) -> bool:
    """Whether a rebuild of this filter runs now, in any process."""
    try:
        descriptor = open_file(store.path / FILE_NAME, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        holder = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _lock(store, name))
    finally:
        os.close(descriptor)
    return bool(struct.unpack_from("@h", holder)[0] != fcntl.F_UNLCK)


def _lock(store: Store, name: str) -> bytes:
    """A struct flock: type, whence, start, length, process."""
    return struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, store[name].number, 1, 0)
