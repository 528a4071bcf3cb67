"""The writer lock of a store, its words in shared memory, and the list of who uses it.

One writer at a time: a lock between threads, then flock on the file `lock`. Order: thread lock,
flock, LMDB's own lock. The first page of `lock` is mapped by every process:

    word  name        meaning
       0  generation  the catalog's generation; readers reload their stages when it moved
       1  applied     the last journal sequence whose bits are all set
       2  wanted      how many processes wait for the lock
       3  applying    number of the segment that a `process` add is changing, else 0
       4  boot        which boot of the machine the words belong to

The words are hints of this boot, the catalog holds the truth. Words are read and written as
aligned 64-bit units; what makes an acknowledged key visible elsewhere is the caller's own message.

Every opener holds a shared flock on `users`; who gets it exclusively is alone.

Not here: finishing what a dead holder left (recovery.py), what is done under the lock (writer.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

from bloomstore.errors import DamagedFile, StoreLocked
from bloomstore.segment.mapping import MappedFile, allocate, sync_descriptor

LOCK_BYTES = 4096
GENERATION = 0
APPLIED = 1
WANTED = 2
APPLYING = 3
BOOT = 4
WORDS = 8

# Waiting for flock: first often, then every 5 ms. A durable add takes about one millisecond.
_FIRST_PAUSE = 0.0001
_LONGEST_PAUSE = 0.005


def make_lock_files(folder: Path) -> None:
    """Creates `lock` and `users` in a new store, durable."""
    for name, length in (("lock", LOCK_BYTES), ("users", 0)):
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(folder / name, flags, 0o600)
        try:
            if length:
                allocate(descriptor, length)
            sync_descriptor(descriptor)
        finally:
            os.close(descriptor)


class WriterLock:
    """One per open store and process; any thread may hold it, re-entrantly."""

    def __init__(self, path: Path, *, read_only: bool, seconds: float) -> None:
        self.path = path
        self._seconds = seconds
        self._threads = threading.RLock()
        self._depth = 0
        try:
            self._descriptor = os.open(
                path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
            )
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the lock file of the store is missing") from None
        length = os.fstat(self._descriptor).st_size
        if length < LOCK_BYTES:
            os.close(self._descriptor)
            raise DamagedFile(path, length, f"file ends here, expected {LOCK_BYTES} bytes")
        self._file = MappedFile(path, os.dup(self._descriptor), LOCK_BYTES, writable=not read_only)
        self.words: memoryview = self._file.words(0, WORDS)

    @contextlib.contextmanager
    def hold(self) -> abc.Iterator[None]:
        """Holds the lock for this block. Raises StoreLocked after the timeout."""
        with self.threads():
            if self._depth == 0:
                self._wait_for_file()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def threads(self) -> abc.Iterator[None]:
        """Keeps the other threads of this process out; the first half of `hold`."""
        if not self._threads.acquire(timeout=self._seconds):
            raise StoreLocked(f"{self.path}: another thread has held it for {self._seconds} s")
        try:
            yield
        finally:
            self._threads.release()

    def _wait_for_file(self) -> None:
        deadline = time.monotonic() + self._seconds
        pause = _FIRST_PAUSE
        while not try_flock(self._descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise StoreLocked(f"{self.path}: another process has held it for {self._seconds} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def pause_threads(self) -> None:
        """Waits until no thread writes, and keeps them from it (before a fork)."""
        self._threads.acquire()

    def resume_threads(self) -> None:
        """The end of pause_threads, in the parent."""
        self._threads.release()

    def forget_threads(self) -> None:
        """The end of pause_threads, in the child: no other thread came along."""
        self._threads = threading.RLock()

    def close(self) -> None:
        """Closes the descriptor. Never unlocks: an inherited lock is the parent's."""
        os.close(self._descriptor)


class Users:
    """The shared lock that says: this store is in use."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the users file of the store is missing") from None

    def is_alone(self) -> bool:
        """Takes the lock exclusively if nobody else has it; `share` must follow."""
        return try_flock(self._descriptor, fcntl.LOCK_EX)

    def share(self) -> None:
        """Holds the shared lock from now on."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Leaves the list of users."""
        os.close(self._descriptor)


def try_flock(descriptor: int, kind: int) -> bool:
    """Takes an flock without waiting; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
