"""The writer lock of a store: one writer at a time, among threads and among processes.

Order of locks: the lock between threads, then the flock on the file `lock` (kept_lock.py), then
LMDB's own lock. The lock is a Holding: an exception at any moment leaves it free (held.py).

Not here: finishing what a dead holder left (durable/recovery.py, durable/holding.py), what is done
under the lock (write/).
"""

from __future__ import annotations

import threading
from pathlib import Path

from bloomstore.errors import StoreLocked
from bloomstore.held import Holding, mine
from bloomstore.store.process.kept_lock import KeptLock
from bloomstore.store.process.words import WANTED


class WriterLock(KeptLock):
    """One per open store and process; any thread may hold it, and its holder hold it again.

    `hold(keep=True)` leaves the flock taken at its end, until another process wants it: the next
    hold of this process is then free.
    """

    def __init__(self, path: Path, *, read_only: bool, seconds: float) -> None:
        super().__init__(path, read_only=read_only, seconds=seconds)
        self._is_paused = False
        self._quick = Hold(self, keep=False)  # shared by all calls of at_once: it has no state

    def hold(self, *, keep: bool = False) -> Hold:
        """Holds the lock for a block. Raises StoreLocked after the timeout."""
        return Hold(self, keep=keep)

    def at_once(self) -> Hold | None:
        """The lock, if it can be had without waiting; then `end` of it must follow."""
        if self.is_mine or self._was_asked:
            return None
        mine.held.append(self._quick)
        is_locked = self._threads.acquire(blocking=False)
        # Checked after taking the lock: another thread may have closed it before.
        if is_locked and self._descriptor >= 0 and (self._has_file or self._try_file()):
            self.keeper.is_free = False
            self._depth = 1
            return self._quick
        self._quick.end()
        return None

    def threads(self) -> Threads:
        """Keeps the other threads of this process out of a block; the first half of `hold`.

        A change begins here. A change inside another one, by a signal handler, a finalizer or the
        code of a key, is refused: the outer one would continue with what it had read before.
        """
        return Threads(self)

    def lock_threads(self) -> None:
        """Waits until no other thread has the lock. Raises StoreLocked."""
        if not self._threads.acquire(timeout=self._seconds):
            raise StoreLocked(
                f"{self.path}: another thread has held the writer lock for {self._seconds} s"
            )

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

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it, or is about to."""
        return self._threads._is_owned()  # type: ignore[attr-defined, no-any-return]

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


class Threads(Holding):
    """The block of WriterLock.threads."""

    __slots__ = ("_lock",)

    def __init__(self, lock: WriterLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if self._lock.is_mine:
            raise StoreLocked(
                f"{self._lock.path}: this thread is in the middle of another change; end that first"
            )
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

        After an exception the next holder must look for work that was left half done.
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
