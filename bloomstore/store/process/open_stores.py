"""The stores that this process has open, and their steps around a fork.

One Store object per catalog and process: LMDB environments must not be opened twice, and an flock
of one object would not keep out another. If a store was removed or replaced while it was open, its
path leads to another store, and both may be open.
"""

from __future__ import annotations

import os
import threading

from bloomstore.errors import StoreFailed
from bloomstore.store.process.folder import Folder
from bloomstore.store.process.open_store import OpenStore
from bloomstore.store.process.place import Identity, identity
from bloomstore.store.process.watch import End, Watch

# Protects the registry and the number of users of each store; outermost of all locks.
lock = threading.RLock()
_open: dict[Identity, OpenStore] = {}  # by the catalog's file: several paths may lead to it


def find(folder: Folder) -> OpenStore | None:
    """The open store in this folder. Raises StoreFailed if it was opened there under another path.

    Such a store was moved, and LMDB environments must not be opened twice.
    """
    try:
        store = _open.get(identity(folder.data))
    except OSError:
        return None  # opening the store will report the error
    if store is not None and store._is_closing:
        store.close()
        return None
    if store is not None and store._core.is_lost():
        raise StoreFailed(
            f"{folder.path} is open in this process as {store.path}, where it was before it was"
            " moved; close that one first"
        )
    return store


def remember(store: OpenStore) -> None:
    """Enters an open store."""
    _open[store._core.data] = store
    _watch.begin()


def forget(store: OpenStore) -> None:
    """Takes out a store that is being closed."""
    for key in [key for key, known in _open.items() if known is store]:
        del _open[key]
    if not _open:
        _watch.end()


def watch() -> None:
    """Begins to watch, in a forked child that has opened a store again."""
    with lock:
        _watch.begin()


def _look(end: End) -> None:
    for store in list(_open.values()):
        store._look(end)


_watch = Watch(_look, lambda: bool(_open))


class _Fork:
    """A fork in progress."""

    def __init__(self) -> None:
        self.had_lock: bool = lock._is_owned()  # type: ignore[attr-defined]
        self.is_over = False


_forks: dict[int, _Fork] = {}  # by thread


def _before_fork() -> None:
    me = threading.get_ident()
    if me not in _forks or _forks[me].is_over:
        _forks[me] = _Fork()
    if not lock._is_owned():  # type: ignore[attr-defined]
        lock.acquire()
    _watch.pause()
    for store in _open.values():
        store._before_fork()


def _after_fork_in_parent() -> None:
    fork = _forks.get(threading.get_ident())
    if fork is None:
        return
    if not fork.is_over:
        for store in _open.values():
            store._after_fork_in_parent()
        _watch.resume()
        fork.is_over = True
    if not fork.had_lock and lock._is_owned():  # type: ignore[attr-defined]
        lock.release()
    _forks.pop(threading.get_ident(), None)


def _after_fork_in_child() -> None:
    global lock
    lock = threading.RLock()
    _forks.clear()
    _watch.forget()
    for store in _open.values():
        store._after_fork_in_child()


# Registered twice: when an interrupt comes inside one of these, done or not, Python continues the
# fork. Each may be called again at any moment, also half done; the second call does what is left.
for _ in range(2):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
os.register_at_fork(after_in_parent=_watch.after_fork)
