"""Copies a filter from another store, for keys that no source has any more.

Its keys cannot be listed, so this is no Source: nothing can be counted, resized or asked for again.
The proof covers the soundness of the other filter, and every block of the copy. A copy cannot be
resumed; `give_up` or the next rebuild discards what a kill leaves behind.
"""

from __future__ import annotations

import time

from bloomstore import Store
from bloomstore.errors import SourceError
from bloomstore.rebuild.order import Rebuilt
from bloomstore.rebuild.rebuild_lock import only_rebuild
from bloomstore.rebuild.state import forget_state
from bloomstore.store.note_names import has_guard
from bloomstore.store.write.copying import begin_copy


def copy_filter(store: Store, name: str, other: Store, other_name: str | None = None) -> Rebuilt:
    """Replaces the bits and the spec of a filter by those of another, by default of the same name.

    Readers continue, writers wait for the copy. Keys that only the old bits had are gone.
    """
    other_name = name if other_name is None else other_name
    if (store.path, name) == (other.path, other_name):
        raise SourceError(f"filter {name!r} of {store.path} cannot be copied from itself")
    if has_guard(store.notes, name):
        raise SourceError(
            f"{name!r} is the filter of a guard: only its own database makes it valid"
        )
    started = time.monotonic()
    with only_rebuild(store, name):
        new = begin_copy(store, name, other, other_name)
        try:
            new.switch()
        except BaseException:
            if not new.is_switched:
                new.discard()
            raise
        forget_state(store, name)  # of a rebuild that was interrupted before
    keys, now = store[name].stats().keys, store[name].state
    return Rebuilt(
        name=name,
        rows=keys,
        keys=keys,
        resumed_at=0,
        seconds=time.monotonic() - started,
        still="" if now.is_sound else str(now),
    )
