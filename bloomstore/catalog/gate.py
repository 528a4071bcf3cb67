"""A gate before every transaction: shut while the process forks, and for ever once it is closed.

A forked child that closes its copy of an environment would free the parent's place in LMDB's table
of readers, and closing an environment under a running transaction is not safe either. So forks and
closing wait until nobody is inside; whoever comes meanwhile waits, or is told that it is closed.

There is no lock: who comes writes down that it is inside before it looks whether the gate is shut,
who shuts it does so before it looks who is inside, so at least one of them sees the other. Whoever
has to wait looks again and again: it is for the moment of a fork. So an interrupt leaves nothing
behind but a number, and whoever goes in knows which one it was.
"""

from __future__ import annotations

import threading
import time

from bloomstore.errors import StoreClosed

_PAUSE = 0.0002


class Gate:
    """Counts who is inside. A thread that is inside may enter again, also while others wait."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        self.is_shut = False  # set to False, it is the end of `shut`
        self._is_closed = False

    def times(self, me: int) -> int:
        """How often the thread with this number, that of the caller, is inside."""
        return self._inside.get(me, 0)

    def enter(self, me: int, before: int) -> None:
        """Goes in, where it was so often before. Raises StoreClosed."""
        self._inside[me] = before + 1
        while self.is_shut and not before:
            self._inside.pop(me, None)
            time.sleep(_PAUSE)
            self._inside[me] = 1
        if self._is_closed:
            self.leave(me, before)
            raise StoreClosed("the store is closed")

    def leave(self, me: int, before: int) -> None:
        """Goes out: from now on this thread is inside as often as it was before."""
        if before:
            self._inside[me] = before
        else:
            self._inside.pop(me, None)

    @property
    def is_inside(self) -> bool:
        """Whether this thread is inside."""
        return threading.get_ident() in self._inside

    def require_open(self) -> None:
        """Raises StoreClosed once it is closed."""
        if self._is_closed:
            raise StoreClosed("the store is closed")

    def shut(self) -> None:
        """Waits until no other thread is inside, and keeps all of them out. May come twice."""
        me = threading.get_ident()
        try:
            self.is_shut = True
            while any(thread != me for thread in list(self._inside)):
                time.sleep(_PAUSE)
        except BaseException:
            self.is_shut = False
            raise

    def close(self) -> None:
        """Nobody comes in any more; whoever waits is told so."""
        try:
            self.shut()
            self._is_closed = True
        finally:
            self.is_shut = False
