"""The flock between processes, which a process may keep between its holds.

An add of durability `process` takes no system call while its process keeps the flock: flock and
unlock would cost 2.4 us per add. The keeping process gives the flock back when another process
raises the word `wanted`, when it has been idle, or when the store is lost. A thread looks for that
every 5 ms, because adds at full speed and idle processes ask nothing.

`keeper` tells single adds all they need: whether the flock is kept with no thread inside,
and in which tenure.

Not here: the lock between threads, and holding both for a block (writer_lock.py).
"""

from __future__ import annotations

import collections.abc as abc
import fcntl
import os
import threading
import time
from pathlib import Path

from bloomstore import kernels
from bloomstore.errors import DamagedFile, StoreClosed, StoreLocked
from bloomstore.segment.mapping import MappedFile, open_file
from bloomstore.store.process.words import LOCK_BYTES, WANTED, WORDS

# Waiting for the flock: often at first, then every 5 ms. A durable add takes about a millisecond.
_FIRST_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.005
# After giving the lock up on request, wait this long before competing again, so that waiters get
# it: twice their longest pause.
_YIELD_SECONDS = 0.010
# How often the watching thread looks at a kept flock, and after how many looks without an add it
# gives the flock back.
_WATCH_SECONDS = 0.005
_IDLE_LOOKS = 20


class KeptLock:
    """The flock on the file `lock` of a store, and the words in that file.

    Every method but `at_once` of the subclass runs with the other threads locked out.
    """

    def __init__(self, path: Path, *, read_only: bool, seconds: float) -> None:
        self.path = path
        self._seconds = min(seconds, threading.TIMEOUT_MAX)
        # Locks the other threads out. Never taken twice: its owner goes without.
        self._threads = threading.RLock()
        self._depth = 0  # how many holds are inside each other
        self._has_file = False
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
        # Asked while the flock is kept, since single adds ask for nothing (place.py).
        self.loss: abc.Callable[[], object] = lambda: None

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the number of the open file."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    @property
    def tenure(self) -> int:
        """Equal tenures: no other process wrote in between, and no checkpoint was made."""
        return self.keeper.tenure

    def begin_tenure(self) -> None:
        """Makes this process read again all that it remembers of the store under this lock."""
        self.keeper.tenure += 1

    def _take_file(self) -> None:
        """Takes the flock. A process that gave it up on request lets the others go first."""
        if self._descriptor < 0:
            raise StoreClosed(f"the store of {self.path} is closed")
        begin = time.monotonic()
        while self._was_asked and self.words[WANTED] and time.monotonic() < begin + _YIELD_SECONDS:
            time.sleep(_FIRST_PAUSE_SECONDS)
        pause = _FIRST_PAUSE_SECONDS
        while not self._try_file():
            if time.monotonic() >= begin + self._seconds:
                raise StoreLocked(
                    f"{self.path}: another process has held the writer lock for {self._seconds} s"
                )
            self.words[WANTED] = 1
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
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
            time.sleep(_WATCH_SECONDS)
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
        """Gives back a flock that is kept and not held."""
        self.keeper.is_free = False
        if self._has_file and self._depth == 0:
            self._release_file()

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
