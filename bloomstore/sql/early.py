"""Begins the durable step of a transaction while the database works on its first statement.

A thread adds the keys of that statement meanwhile. The durable step waits for the thread and then
does what it always does; a key that the filter knows by then needs no commit. So no answer depends
on this: an early key that is lost is added again, and one that is rolled back is a spare key.

A commit of one row to PostgreSQL took 0.7 bare LMDB commits longer than without a guard, and 1.4 to
1.6 before. It pays where a statement is waited for (not on SQLite) and is the only one of its
transaction to write: two would be two commits. What the last transaction did decides.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

from bloomstore import Filter, Store
from bloomstore.keys import Key
from bloomstore.sql.active import ActiveGuard


class Early:
    """The thread of one plugin."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pays = True
        self._thread: ThreadPoolExecutor | None = None
        self._process = 0
        self._running: Future[None] | None = None

    def begin(self, wanted: dict[ActiveGuard, set[Key]]) -> Future[None] | None:
        """Adds keys in the background; None where the durable step does it as well."""
        added = [
            (guard.filter, list(keys))
            for guard, keys in wanted.items()
            if guard.is_durable and keys and not guard.doubt
        ]
        if not added:
            return None
        if self._process != os.getpid():  # a forked child has no threads
            self.end()
        if self._running is not None and not self._running.done():
            return None  # threads that wait for the writer lock are served together
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "bloomstore-early")
            self._process = os.getpid()
        try:
            self._running = self._thread.submit(_add, self._store, added)
        except RuntimeError:  # the interpreter is ending, or there are no more threads
            return None
        return self._running

    def end(self) -> None:
        """The thread ends with what it has begun."""
        thread, self._thread, self._running = self._thread, None, None
        if thread is not None:
            thread.shutdown(wait=self._process == os.getpid())


def _add(store: Store, added: list[tuple[Filter, list[Key]]]) -> None:
    if len(added) == 1 and len(added[0][1]) == 1:
        ((asked, (key,)),) = added
        asked.add(key)
        return
    with store.batch():  # one commit for all
        for asked, keys in added:
            asked.add_many(keys)
