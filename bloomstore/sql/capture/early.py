"""Begins the durable step of a transaction while the database works on its first statement.

A thread adds the keys of that statement meanwhile. The durable step waits for the thread and then
does what it always does; a key that the filter knows by then needs no commit. So no answer depends
on this: an early key that is lost is added again, and one that is rolled back is a spare key.

With it a commit of one row to PostgreSQL takes 1.1 bare LMDB commits longer than without a guard,
instead of 1.4 (tools/bench_sql.py). It pays where a statement is waited for (not on SQLite) and is
the only one of its transaction to write: two would be two commits. The last transaction decides.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from bloomstore import Filter, Store
from bloomstore.keys import Key
from bloomstore.sql.guards.guard import ActiveGuard


class Begun:
    """What the thread was given once."""

    __slots__ = ("_future", "_process")

    def __init__(self, future: Future[None]) -> None:
        self._future = future
        self._process = os.getpid()

    def wait(self) -> None:
        """Until it has ended, well or not: it never does in a forked child.

        Nor while the thread itself waits, where the garbage collector ends a transaction.
        """
        if self._process == os.getpid() and not hasattr(_here, "is_early"):
            self._future.exception()


class Early:
    """The thread of one plugin."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pays = True
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._process = os.getpid()

    def begin(self, wanted: dict[ActiveGuard, set[Key]]) -> Begun | None:
        """Adds keys in the background; None where the durable step does it as well."""
        added = [
            (guard.filter, list(keys))
            for guard, keys in wanted.items()
            if guard.is_durable and keys and not guard.doubt
        ]
        if not added:
            return None
        if self._process != os.getpid():  # a forked child has none of the threads
            self._thread = self._running = None
            self._process = os.getpid()
        running = self._running
        if running is not None and not running.done():
            return None  # threads that wait for the writer lock are served together
        thread = self._thread
        if thread is None:
            thread = self._thread = ThreadPoolExecutor(1, "bloomstore-early")
        try:
            running = self._running = thread.submit(_add, self._store, added)
        except RuntimeError:  # the interpreter is ending, or the plugin listens no more
            return None
        return Begun(running)

    def end(self) -> None:
        """The thread ends with what it has begun."""
        thread, self._thread, self._running = self._thread, None, None
        if thread is not None and self._process == os.getpid():
            thread.shutdown()


_here = threading.local()


def _add(store: Store, added: list[tuple[Filter, list[Key]]]) -> None:
    _here.is_early = True
    if len(added) == 1 and len(added[0][1]) == 1:
        ((asked, (key,)),) = added
        asked.add(key)
        return
    with store.batch():  # one commit for all
        for asked, keys in added:
            asked.add_many(keys)
