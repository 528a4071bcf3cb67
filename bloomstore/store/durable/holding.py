"""Holding the writer lock for a change, with everything that dead holders left finished first.

`writing` is the lock of a change that stands alone; `holding` is its inner half, for callers that
have locked the other threads out already (group commit, turns of durability `process`).

Not here: the lock itself (process/writer_lock.py), finishing work (recovery.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib

from bloomstore.errors import StoreFailed, StoreReadOnly
from bloomstore.store.durable import recovery, trust
from bloomstore.store.process.open_files import Core


@contextlib.contextmanager
def writing(core: Core) -> abc.Iterator[None]:
    """Holds the writer lock for a separate change. Raises StoreLocked inside another change."""
    with core.lock.threads(), holding(core):
        core.require_place()
        yield
        core.require_place()


@contextlib.contextmanager
def holding(core: Core, *, keep: bool = False) -> abc.Iterator[None]:
    """Holds the writer lock, with everything that dead holders left finished."""
    if core.options.read_only:
        raise StoreReadOnly(f"{core.folder.path} was opened read-only")
    if core.doubt is not None:
        raise StoreFailed(f"{core.folder.path} takes no changes: {core.doubt}")
    with core.hold(keep=keep):
        if core.finished_tenure != core.lock.tenure:
            recovery.finish(core)
            core.finished_tenure = core.lock.tenure
        if core.unrecorded:
            trust.record_all(core)
        yield
