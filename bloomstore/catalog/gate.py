"""A gate before every transaction: shut while the process forks, and for ever once it is closed.

A forked child that closes its copy of an environment would free the parent's place in LMDB's table
of readers, and closing an environment under a running transaction is not safe either. So forks and
closing wait until nobody is inside; whoever comes meanwhile waits, or is told that it is closed.
"""

from __future__ import annotations

import threading

from bloomstore.errors import StoreClosed


class Gate:
    """Counts who is inside. A thread that is inside may enter again, also while others wait."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come in the middle, and enter too
        self._change = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        self._is_shut = False
        self._is_closed = False

    def enter(self) -> None:
        """Goes in. Raises StoreClosed."""
        me = threading.get_ident()
        with self._lock:
            while self._is_shut and me not in self._inside:
                self._change.wait()
            if self._is_closed:
                raise StoreClosed("the store is closed")
            self._inside[me] = self._inside.get(me, 0) + 1

    def leave(self) -> None:
        """Goes out."""
        me = threading.get_ident()
        with self._lock:
            left = self._inside[me] - 1
            if left:
                self._inside[me] = left
                return
            self._inside.pop(me, None)
            if self._is_shut:  # who waits for this has shut it before
                self._change.notify_all()

    def shut(self) -> None:
        """Waits until no other thread is inside, and keeps all of them out."""
        me = threading.get_ident()
        with self._change:
            self._is_shut = True
            while self._inside.keys() - {me}:
                self._change.wait()

    def open(self) -> None:
        """The end of `shut`."""
        with self._change:
            self._is_shut = False
            self._change.notify_all()

    def close(self) -> None:
        """Nobody comes in any more; whoever waits is told so."""
        self.shut()
        with self._change:
            self._is_closed = True
        self.open()
