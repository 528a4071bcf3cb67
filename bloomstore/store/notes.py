"""A small mapping of checked bytes in the catalog, for plugins: names to values, durable.

Every change is one durable commit. Values are checked when they are read: a damaged one is never
returned, it raises DamagedRow.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.errors import NoteNotFound, SpecError
from bloomstore.held import whole
from bloomstore.store.process.open_store import OpenStore

MAX_NAME_BYTES = 480  # an LMDB key has at most 511


class Notes(abc.MutableMapping[str, bytes]):
    """store.notes["plugin/position"] = b"42"."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    @whole
    def __getitem__(self, name: str) -> bytes:
        with self._store._core.catalog.read() as view:
            value = view.note(_key(name))
        if value is None:
            raise NoteNotFound(name)
        return value

    @whole
    def __setitem__(self, name: str, value: bytes) -> None:
        key, value = _key(name), _checked(value)
        with self._store._changing("a note") as core, core.change() as change:
            core.catalog.require_room()
            change.put_note(key, value)

    @whole
    def change(self, name: str, make: abc.Callable[[bytes | None], bytes | None]) -> None:
        """Replaces a note by the value that `make` returns for it, with no other change in between.

        `make` gets None if there is no note; if it returns None, nothing changes.
        """
        key = _key(name)
        with self._store._changing("a note") as core, core.change() as change:
            value = make(change.note(key))
            if value is not None:
                core.catalog.require_room()
                change.put_note(key, _checked(value))

    @whole
    def __delitem__(self, name: str) -> None:
        key = _key(name)
        with self._store._changing("a note") as core, core.change() as change:
            if change.note(key) is None:
                raise NoteNotFound(name)
            change.delete_note(key)

    @whole
    def __iter__(self) -> abc.Iterator[str]:
        with self._store._core.catalog.read() as view:
            return iter([key.decode(errors="replace") for key in view.note_keys()])

    @whole
    def __len__(self) -> int:
        with self._store._core.catalog.read() as view:
            return len(view.note_keys())


def _key(name: object) -> bytes:
    key = name.encode(errors="replace") if isinstance(name, str) else b""
    if not isinstance(name, str) or not 1 <= len(key) <= MAX_NAME_BYTES or key.decode() != name:
        raise SpecError(
            f"a note's name is a str of 1..{MAX_NAME_BYTES} bytes of valid Unicode, got {name!r}"
        )
    return key


def _checked(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise SpecError(f"a note's value is bytes, got {type(value).__name__}")
    return value
