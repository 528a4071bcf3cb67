"""The names of the notes that bloomstore itself keeps in a store; FORMAT.md describes them.

    guard/<filter>              the record of a guard's last build   sql/guards/record.py
    guard/<filter>/position     how far its outbox was read          sql/outbox/position.py
    guard/<filter>/followed     the last pass of its follower        sql/outbox/position.py
    rebuild/<filter>            how far a rebuild has come           rebuild/state.py

Every other name is free for programs that use `store.notes`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

_GUARD = "guard/"
_REBUILD = "rebuild/"


def guard_note(name: str) -> str:
    """The record of the guard of this name, whose filter has the same name."""
    return f"{_GUARD}{name}"


def position_note(name: str) -> str:
    """The position of a guard in its outbox."""
    return f"{_GUARD}{name}/position"


def followed_note(name: str) -> str:
    """The last complete pass over a guard's outbox."""
    return f"{_GUARD}{name}/followed"


def rebuild_note(name: str) -> str:
    """The state of a rebuild of the filter of this name."""
    return f"{_REBUILD}{name}"


def has_guard(notes: Container[object], name: str) -> bool:
    """Whether the filter belongs to a guard: its keys have a form that only the guard knows."""
    return guard_note(name) in notes


def guards_among(notes: Iterable[str]) -> Iterator[str]:
    """Names that may be those of guards: every guard is among them."""
    return (note.removeprefix(_GUARD) for note in notes if note.startswith(_GUARD))
