"""The writer lock of a store, its words in shared memory, and the list of who uses it.

One writer at a time: a lock between threads, then flock on the file `lock`. Order: thread lock,
flock, LMDB's own lock. The first page of `lock` is mapped by every process:

    word  name        meaning
       0  generation  the catalog's generation; readers reload their stages when it moved
       1  applied     the last journal sequence whose bits are all set
       2  wanted      1 while a process waits for the lock
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

from bloomstore import kernels
from bloomstore.errors import DamagedFile, StoreClosed, StoreLocked
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
# Who was asked to release waits this long for the others to be faster: twice their longest pause.
_MANNERS = 0.010
# A kept lock is looked at this often, and given back after this many looks without an add.
_LOOK = 0.005
_IDLE_LOOKS = 20


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
    """One per open store and process; any thread may hold it, and its holder hold it again.

    `hold(keep=True)` leaves the flock taken at its end, until somebody else wants it: the next
    hold of this process is then free. `keeper` tells single adds what they need to know: that the
    lock is kept and no thread is inside, and in which tenure.
    """

    def __init__(self, path: Path, *, read_only: bool, seconds: float) -> None:
        self.path = path
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        self._threads = threading.RLock()
        self._depth = 0
        self._has_file = False
        self._was_asked = False
        self.keeper = kernels.Keeper()
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        try:
            mapped = os.open(path, flags)
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the lock file of the store is missing") from None
        length = os.fstat(mapped).st_size
        if length < LOCK_BYTES:
            os.close(mapped)
            raise DamagedFile(path, length, f"file ends here, expected {LOCK_BYTES} bytes")
        self._file = MappedFile(path, mapped, LOCK_BYTES, writable=not read_only)
        self.words: memoryview = self._file.words(0, WORDS)
        # A descriptor of its own: a mapping that lives on in a forked child must not keep a lock.
        self._descriptor = os.open(path, flags)
        self._watcher: threading.Thread | None = None

    @contextlib.contextmanager
    def hold(self, *, keep: bool = False) -> abc.Iterator[None]:
        """Holds the lock for this block. Raises StoreLocked after the timeout."""
        with contextlib.nullcontext() if self.is_mine else self.threads():
            self.keeper.is_free = False
            if not self._has_file:
                self._take_file()
            self._depth += 1
            try:
                yield
            except BaseException:
                keep = False  # whoever comes next must look at what was left half done
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    if keep and not self.words[WANTED]:
                        self._keep()
                    else:
                        self._release_file()

    def take_at_once(self) -> bool:
        """Holds the lock if it can be had without waiting; then `give_back` must follow."""
        if self.is_mine or not self._threads.acquire(blocking=False):
            return False
        is_taken = False
        try:
            if (
                self._depth == 0
                and not self._was_asked
                and self._descriptor >= 0
                and (self._has_file or self._try_file())
            ):
                self.keeper.is_free = False
                self._depth = 1
                is_taken = True
        finally:
            if not is_taken:
                self._threads.release()
        return is_taken

    def give_back(self) -> None:
        """The end of take_at_once."""
        try:
            self._depth = 0
            self._release_file()
        finally:
            self._threads.release()

    @contextlib.contextmanager
    def threads(self) -> abc.Iterator[None]:
        """Keeps the other threads of this process out; the first half of `hold`.

        A change begins here. One inside another, by a signal handler, a finalizer or the code of a
        key, would be forgotten by the one around it, which goes on with what it knew before.
        """
        if self.is_mine:
            raise StoreLocked(f"{self.path}: this thread is in the middle of another change")
        if not self._threads.acquire(timeout=self._seconds):
            raise StoreLocked(f"{self.path}: another thread has held it for {self._seconds} s")
        try:
            yield
        finally:
            self._threads.release()

    def _take_file(self) -> None:
        """Takes the flock. Who was asked for it before lets the others go first."""
        if self._descriptor < 0:
            raise StoreClosed(f"the store of {self.path} is closed")
        begin = time.monotonic()
        while self._was_asked and self.words[WANTED] and time.monotonic() < begin + _MANNERS:
            time.sleep(_FIRST_PAUSE)
        pause = _FIRST_PAUSE
        while not self._try_file():
            if time.monotonic() >= begin + self._seconds:
                raise StoreLocked(f"{self.path}: another process has held it for {self._seconds} s")
            self.words[WANTED] = 1
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._was_asked = False

    def _try_file(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._has_file = True
        self.words[WANTED] = 0
        self.keeper.tenure += 1
        return True

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it, or is about to."""
        return self._threads._is_owned()  # type: ignore[attr-defined, no-any-return]

    @property
    def is_outermost(self) -> bool:
        """Whether the holder is in no hold but one."""
        return self._depth == 1

    @property
    def tenure(self) -> int:
        """Equal tenures: no other process wrote in between, and no checkpoint was made."""
        return self.keeper.tenure

    def begin_tenure(self) -> None:
        """What was known of the store under this lock must be looked at again."""
        self.keeper.tenure += 1

    def _release_file(self) -> None:
        self._was_asked = bool(self.words[WANTED])
        self._has_file = False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _keep(self) -> None:
        """Leaves the flock taken; a thread gives it back when it is wanted, or idle."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            try:
                self._watcher.start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._watcher = None
                self._release_file()
                return
        self.keeper.is_free = True

    def _watch(self) -> None:
        looks, adds = 0, -1
        while True:
            time.sleep(_LOOK)
            looks = looks + 1 if self.keeper.adds == adds else 0
            adds = self.keeper.adds
            with self._threads:
                if self.keeper.is_free and (self.words[WANTED] or looks >= _IDLE_LOOKS):
                    self.let_go()
                if not self._has_file:
                    self._watcher = None
                    return

    def let_go(self) -> None:
        """Gives back a flock that is only kept. Called with the threads locked out."""
        self.keeper.is_free = False
        if self._has_file and self._depth == 0:
            self._release_file()

    def pause_threads(self) -> None:
        """Waits until no thread writes, and keeps them from it (before a fork)."""
        self._threads.acquire()
        self.let_go()

    def resume_threads(self) -> None:
        """The end of pause_threads, in the parent."""
        self._threads.release()

    def abandon(self) -> None:
        """The end of pause_threads, in the child: nothing is unlocked, the lock is the parent's."""
        self._threads = threading.RLock()
        self.keeper.is_free = False
        self._has_file = False
        self._watcher = None
        os.close(self._descriptor)
        self._descriptor = -1

    def close(self) -> None:
        """Gives the lock back, if it was kept, and closes it."""
        with self._threads:
            self.let_go()
            os.close(self._descriptor)
            self._descriptor = -1


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
