"""The thread that checks whether open stores are still in place, so that lookups need not.

There is one per process, begun with the first open store and ended with the last. It is ended
before a fork and begun again after it: forking a process with several threads is a risk for the
child, and Python warns of it. Python counts the threads of the system for that, since 3.13 after it
has called the fork handlers; so `pause` waits until the thread has left the system, and `resume`
begins the next one in the moment after `os.fork`. A forked child begins its own thread with the
first store that it opens again.

The thread holds no lock while it looks, and gives up waiting for one when it is told to end. An
interrupt in the middle of `begin` or `end` leaves no thread behind: a thread whose End is set, or
is not the newest any more, ends by itself.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import ctypes
import functools
import logging
import os
import threading
import time

log = logging.getLogger("bloomstore")

# For this long a lookup may still answer from a store that is lost.
SECONDS = 0.5
# A disk that does not answer must not keep a process from forking.
_PATIENCE = 2.0

_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class End:
    """Tells a thread to end.

    An interrupt inside a threading.Event leaves the Event's lock taken, and its next user waits for
    ever. This class has one lock, which is free as soon as the thread should end.
    """

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """May be called twice, and at any moment."""
        self.is_set = True
        with contextlib.suppress(RuntimeError):  # it is free already
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Whether the thread should end; waits up to this long."""
        return self._lock.acquire(timeout=seconds) or self.is_set


class Watch:
    """Calls `look` twice a second, in a thread of its own. Not used by several threads at once."""

    def __init__(self, look: abc.Callable[[End], None], is_wanted: abc.Callable[[], bool]) -> None:
        self._look = look
        self._is_wanted = is_wanted
        self._end = End()
        self._thread: threading.Thread | None = None
        self._is_paused = False
        # To be called after a fork, in the parent, last: it does nothing before `os.fork` returns.
        self.after_fork = functools.partial(
            ctypes.pythonapi.Py_AddPendingCall, _PENDING(self._begin_if_paused), None
        )

    def begin(self) -> None:
        """Begins, unless the thread is running already."""
        if self._thread is not None and self._thread.is_alive() and not self._end.is_set:
            return
        self._end = end = End()
        thread = threading.Thread(
            target=self._run, args=(end,), name="bloomstore-watch", daemon=True
        )
        self._thread = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            self._thread = None
            log.warning("no thread can watch whether open stores are moved or removed: %s", error)

    def end(self) -> threading.Thread | None:
        """Ends it, and returns it if it was going on."""
        self._end.set()
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return None
        if thread is not threading.current_thread():
            thread.join(_PATIENCE)
        return thread

    def pause(self) -> None:
        """Ends the thread before a fork. May be called twice."""
        self._is_paused = self._is_paused or self._thread is not None
        thread = self.end()
        if thread is not None:
            trace = f"/proc/self/task/{thread.native_id}"
            ends = time.monotonic() + _PATIENCE
            while os.path.exists(trace) and time.monotonic() < ends:  # noqa: PTH110  (faster)
                time.sleep(0)

    def resume(self) -> None:
        """Prepares a new thread in the parent after a fork; `after_fork` must follow."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or threading.active_count() > 1:  # Python warns anyhow
            self._begin_if_paused()

    def _begin_if_paused(self, _: object = None) -> int:
        if self._is_paused:
            if self._is_wanted():
                self.begin()
            self._is_paused = False
        return 0

    def forget(self) -> None:
        """Forgets the thread in a forked child: it was the parent's."""
        self._thread = None
        self._is_paused = False

    def _run(self, end: End) -> None:
        while not end.wait(SECONDS) and self._end is end:
            try:
                self._look(end)
            except Exception:
                log.exception("checking whether open stores are still in place failed")
