"""A filter that becomes what a filter of another store is: for keys that no source has any more.

Its keys cannot be listed, so this is no Source: nothing can be counted, sized anew or asked for
again. What is proved is that the other filter was sound, and every block of the copy. It cannot be
resumed; what a kill leaves behind is discarded by `give_up` or the next rebuild.
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
    """Replaces the bits and the spec of a filter by those of another one, of the same name or this.

    Readers go on, writers wait for the copy. Keys that only the old bits had are gone.
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
        forget_state(store, name)  # of a rebuild that was cut off before
    keys, now = store[name].stats().keys, store[name].state
    return Rebuilt(
        name=name,
        rows=keys,
        keys=keys,
        resumed_at=0,
        seconds=time.monotonic() - started,
        still="" if now.is_sound else str(now),
    )
