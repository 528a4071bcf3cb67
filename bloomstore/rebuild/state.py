"""How far a rebuild has come, as JSON in the store's notes under "rebuild/<filter>".

    chain      id of the coming chain (store/write/coming_chain.py); the state is void for any other
    source     identity of the source; another one is refused
    wanted     the request (spec, capacity, target error); any other is refused
    fences     tokens of the fences that stood when the rebuild began; only these may be lowered
    proof      facts that must be the same as when the position was noted (Source.proof)
    position   after the last batch whose keys are durable, null before the first
    rows       read up to there
    had        keys of the old filter when the rebuild began
    asked      keys that the old filter was asked for, some of each batch; known: those it reported
    began_at   seconds since 1970

Written after each batch, once its keys are durable: all keys before the position are in the chain.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bloomstore import Store
from bloomstore.rebuild.source import Position
from bloomstore.store.note_names import rebuild_note


@dataclass(slots=True)
class State:
    """How far the rebuild of one filter has come."""

    chain: str
    source: dict[str, Any]
    wanted: dict[str, Any]
    fences: list[str]
    began_at: float
    proof: dict[str, Any] = field(default_factory=dict)
    position: Position | None = None
    rows: int = 0
    had: int = 0
    asked: int = 0
    known: int = 0


def read_state(store: Store, name: str) -> State | None:
    """The rebuild that was begun and has not ended; None if there is none."""
    note = store.notes.get(rebuild_note(name))
    if note is None:
        return None
    fields = json.loads(note)
    return State(**{name: fields[name] for name in State.__slots__ if name in fields})


def write_state(store: Store, name: str, state: State) -> None:
    """Writes the state; it is durable when this returns."""
    store.notes[rebuild_note(name)] = json.dumps(asdict(state)).encode()


def forget_state(store: Store, name: str) -> None:
    """Deletes the state: the rebuild is over."""
    store.notes.pop(rebuild_note(name), None)
