"""Which stores this process has open, by folder, and what a fork means for them.

One Store object per folder and process: LMDB environments must not be opened twice, and an flock
of one object would not keep out another.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bloomstore.store.store import Store

# Protects the registry and the number of users of each store; outermost of all locks.
lock = threading.RLock()
_open: dict[tuple[int, int], Store] = {}


def identity(path: Path) -> tuple[int, int]:
    """Names a folder whatever path leads to it."""
    status = path.stat()
    return status.st_dev, status.st_ino


def find(path: Path) -> Store | None:
    """The open store in this folder."""
    return _open.get(identity(path))


def remember(store: Store) -> None:
    """Enters an open store."""
    _open[identity(store.path)] = store


def forget(store: Store) -> None:
    """Takes out a store that is being closed."""
    for key in [key for key, known in _open.items() if known is store]:
        del _open[key]


def _before_fork() -> None:
    lock.acquire()
    for store in _open.values():
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _open.values():
        store.after_fork_in_parent()
    lock.release()


def _after_fork_in_child() -> None:
    global lock
    lock = threading.RLock()
    for store in _open.values():
        store.after_fork_in_child()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
