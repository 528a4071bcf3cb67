"""A gate before every transaction: shut while the process forks, and for good once closed.

A forked child that closes its copy of an environment would free the parent's slot in LMDB's table
of readers, and closing an environment under a running transaction is not safe either. So forks and
closing wait until no thread is inside; a thread that arrives then waits, or is told that the
store is closed.

There is no lock. A thread notes that it is inside before it looks whether the gate is shut; a
thread that shuts the gate does so before it looks which threads are inside: at least one of them
sees the other. Waiting is polling, since it lasts for the moment of a fork. So an interrupt leaves
nothing behind but a number, and each thread knows what its number was before.
"""

from __future__ import annotations

import threading
import time

from bloomstore.errors import StoreClosed

_PAUSE_SECONDS = 0.0002


class Gate:
    """Counts the threads inside. A thread that is inside may enter again, while others wait."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        self.is_shut = False  # setting it to False ends `shut`
        self._is_closed = False

    def times(self, me: int) -> int:
        """How often the calling thread, which has this number, is inside."""
        return self._inside.get(me, 0)

    def enter(self, me: int, before: int) -> None:
        """Enters, being inside `before` times; waits while the gate is shut. Raises StoreClosed."""
        self._inside[me] = before + 1
        while self.is_shut and not before:
            self._inside.pop(me, None)
            time.sleep(_PAUSE_SECONDS)
            self._inside[me] = 1
        if self._is_closed:
            self.leave(me, before)
            raise StoreClosed("the store is closed")

    def leave(self, me: int, before: int) -> None:
        """Leaves: from now on this thread is inside `before` times."""
        if before:
            self._inside[me] = before
        else:
            self._inside.pop(me, None)

    @property
    def is_inside(self) -> bool:
        """Whether this thread is inside."""
        return threading.get_ident() in self._inside

    def require_open(self) -> None:
        """Raises StoreClosed once the gate is closed."""
        if self._is_closed:
            raise StoreClosed("the store is closed")

    def shut(self) -> None:
        """Waits until no other thread is inside, and keeps all of them out. May come twice."""
        me = threading.get_ident()
        try:
            self.is_shut = True
            while any(thread != me for thread in list(self._inside)):
                time.sleep(_PAUSE_SECONDS)
        except BaseException:
            self.is_shut = False
            raise

    def close(self) -> None:
        """Shuts the gate for good: threads that wait, or come later, get StoreClosed."""
        try:
            self.shut()
            self._is_closed = True
        finally:
            self.is_shut = False
