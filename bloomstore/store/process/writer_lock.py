"""The writer lock of a store, its words in shared memory, and the list of who uses it.

One writer at a time: a lock between threads, then flock on the file `lock`. Order: thread lock,
flock, LMDB's own lock. The first page of `lock` is mapped by every process:

    word  name        meaning
       0  generation  the catalog's generation; readers reload their stages when it moved
       1  applied     the last journal sequence whose bits are all set
       2  wanted      1 while a process waits for the lock
       3  applying    number of the segment that a `process` add is changing, else 0
       4  boot        which boot of the machine the words belong to
       5  committed   number of the last commit of the catalog (catalog/witness.py)

All words but `committed` are hints of this boot, the catalog holds the truth. Words are read and
written as aligned 64-bit units; what makes an acknowledged key visible elsewhere is the caller's
own message.

Every opener holds a shared flock on `users`; who gets it exclusively is alone. They come through a
door, one after the other: an flock on the folder of the catalog.

Not here: finishing what a dead holder left (recovery.py), what is done under the lock (writer.py).
"""

from __future__ import annotations

import collections.abc as abc
import fcntl
import os
import threading
import time
from pathlib import Path

from bloomstore import kernels
from bloomstore.errors import DamagedFile, StoreClosed, StoreFailed, StoreLocked
from bloomstore.held import Holding, mine
from bloomstore.segment.mapping import MappedFile, allocate, open_file, sync_descriptor

LOCK_BYTES = 4096
GENERATION = 0
APPLIED = 1
WANTED = 2
APPLYING = 3
BOOT = 4
COMMITTED = 5
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
        descriptor = open_file(folder / name, os.O_CREAT | os.O_RDWR)
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
        # Never taken twice: whoever has it already goes without.
        self._threads = threading.RLock()
        self._depth = 0  # how many holds are inside of each other
        self._has_file = False
        self._is_paused = False
        self._was_asked = False
        self.keeper = kernels.Keeper()
        flags = os.O_RDONLY if read_only else os.O_RDWR
        try:
            mapped = open_file(path, flags)
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the lock file of the store is missing") from None
        length = os.fstat(mapped).st_size
        if length < LOCK_BYTES:
            os.close(mapped)
            raise DamagedFile(path, length, f"file ends here, expected {LOCK_BYTES} bytes")
        self._file = MappedFile(path, mapped, LOCK_BYTES, writable=not read_only)
        self.words: memoryview = self._file.words(0, WORDS)
        # A descriptor of its own: a mapping that lives on in a forked child must not keep a lock.
        self._descriptor = open_file(path, flags)
        self._watcher: threading.Thread | None = None
        self._quick = Hold(self, keep=False)  # for at_once, of whatever thread: it knows nothing
        # Asked while the lock is kept, since single adds ask nobody (place.py).
        self.loss: abc.Callable[[], object] = lambda: None

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the number of the open file."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def hold(self, *, keep: bool = False) -> Hold:
        """Holds the lock for a block. Raises StoreLocked after the timeout."""
        return Hold(self, keep=keep)

    def at_once(self) -> Hold | None:
        """The lock, if it can be had without waiting; then `end` of it must follow."""
        if self.is_mine or self._was_asked:
            return None
        mine.held.append(self._quick)
        is_locked = self._threads.acquire(blocking=False)
        # Whether it is closed is asked after that: another thread may have closed it before.
        if is_locked and self._descriptor >= 0 and (self._has_file or self._try_file()):
            self.keeper.is_free = False
            self._depth = 1
            return self._quick
        self._quick.end()
        return None

    def threads(self) -> Threads:
        """Keeps the other threads of this process out of a block; the first half of `hold`.

        A change begins here. One inside another, by a signal handler, a finalizer or the code of a
        key, would be forgotten by the one around it, which goes on with what it knew before.
        """
        return Threads(self)

    def lock_threads(self) -> None:
        """Waits until no other thread has the lock. Raises StoreLocked."""
        if not self._threads.acquire(timeout=self._seconds):
            raise StoreLocked(f"{self.path}: another thread has held it for {self._seconds} s")

    def unlock_threads(self) -> None:
        """The end of lock_threads, if this thread has the lock."""
        if self.is_mine:
            self._threads.release()

    def enter(self) -> None:
        """Takes the flock, if it is not kept. With the threads locked out."""
        self.keeper.is_free = False
        if not self._has_file:
            self._take_file()
        self._depth += 1

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
    def tenure(self) -> int:
        """Equal tenures: no other process wrote in between, and no checkpoint was made."""
        return self.keeper.tenure

    def begin_tenure(self) -> None:
        """What was known of the store under this lock must be looked at again."""
        self.keeper.tenure += 1

    def _release_file(self) -> None:
        if self._has_file:
            self._was_asked = bool(self.words[WANTED])
        self.keeper.is_free = False
        self._has_file = False
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _keep(self) -> None:
        """Leaves the flock taken; a thread gives it back when it is wanted, or idle."""
        if self._watcher is None or not self._watcher.is_alive():
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
                is_idle = looks >= _IDLE_LOOKS
                if self.keeper.is_free and (self.words[WANTED] or is_idle or self.loss()):
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
        """Waits until no thread writes, and keeps them from it (before a fork). May come twice."""
        if not self.is_mine:
            self._is_paused = True
            self._threads.acquire()
        self.let_go()

    def resume_threads(self) -> None:
        """The end of pause_threads, in the parent. May come twice."""
        if self._is_paused:
            self.unlock_threads()
            self._is_paused = False

    def abandon(self) -> None:
        """The end of pause_threads, in the child: nothing is unlocked, the lock is the parent's."""
        self._threads = threading.RLock()
        self._is_paused = False
        self.keeper.is_free = False
        self._has_file = False
        self._watcher = None
        self._close_file()

    def close(self) -> None:
        """Gives the lock back, if it was kept, and closes it."""
        with self._threads:
            self.let_go()
            self._close_file()

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Threads(Holding):
    """The block of WriterLock.threads."""

    __slots__ = ("_lock",)

    def __init__(self, lock: WriterLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if self._lock.is_mine:
            raise StoreLocked(f"{self._lock.path}: this thread is in the middle of another change")
        self.announce()
        try:
            self._lock.lock_threads()
        except BaseException:
            self.end()
            raise

    def give_back(self, *, is_done: bool) -> None:
        """Lets the other threads in."""
        self._lock.unlock_threads()


class Hold(Holding):
    """The block of WriterLock.hold."""

    __slots__ = ("_depth", "_is_inner", "_keep", "_lock")

    def __init__(self, lock: WriterLock, *, keep: bool) -> None:
        self._lock = lock
        self._keep = keep
        self._is_inner = lock.is_mine  # then the threads are locked out already
        self._depth: int = lock._depth if self._is_inner else 0

    def __enter__(self) -> None:
        self.announce()
        try:
            if not self._is_inner:
                self._lock.lock_threads()
            self._lock.enter()
        except BaseException:
            self.end()
            raise

    def give_back(self, *, is_done: bool) -> None:
        """Gives the lock back; it is kept only after a block that has ended well.

        After an exception whoever comes next must look at what was left half done.
        """
        lock = self._lock
        if lock.is_mine:  # else it was not taken yet, or belongs to the parent
            lock._depth = self._depth
            if self._depth == 0:
                if is_done and self._keep and not lock.words[WANTED]:
                    lock._keep()
                else:
                    lock._release_file()
            if not self._is_inner:
                lock._threads.release()


class Users:
    """The shared lock that says: this store is in use."""

    def __init__(self, path: Path, door: Path) -> None:
        self.path = path
        try:
            self._descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the users file of the store is missing") from None
        try:
            self._door = os.open(door, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreFailed(f"{door}: cannot be opened: {error.strerror}") from error

    def enter(self, seconds: float) -> bool:
        """Whether nobody else has the store open; then all others wait until `share`.

        So whoever is not alone knows that one who was has looked at the store, and stayed.
        """
        begin = time.monotonic()
        while not try_flock(self._door, fcntl.LOCK_EX):
            if time.monotonic() >= begin + seconds:
                raise StoreLocked(f"{self.path}: another process has opened it for {seconds} s")
            time.sleep(_LONGEST_PAUSE)
        is_alone = try_flock(self._descriptor, fcntl.LOCK_EX)
        if not is_alone:
            self.share()
        return is_alone

    def share(self) -> None:
        """Holds the shared lock from now on, and lets others in."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        self._shut_door()

    def _shut_door(self) -> None:
        door, self._door = self._door, -1
        if door >= 0:
            fcntl.flock(door, fcntl.LOCK_UN)  # a forked child may have a copy
            os.close(door)

    def close(self) -> None:
        """Leaves the list of users."""
        self._shut_door()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def try_flock(descriptor: int, kind: int) -> bool:
    """Takes an flock without waiting; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
