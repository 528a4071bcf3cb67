"""Whether the path of an open store leads to the files that are open still.

Somebody may remove the folder, move it, or put another one in its place, a restored copy say, while
processes have it open. Their files live on without their names, and such a process would go on
answering and acknowledging, blind to everybody who opens the path afterwards. Who notices:

    a change           before it is acknowledged, and before a file is made or unlinked by its path
    kept lock          adds of durability `process` make no call: the thread that watches the kept
                       lock (lock.py) looks every 5 ms
    lookups            one thread of the process looks at every open store (watch.py)

Then the store is lost for this process: it takes no changes and answers "maybe" until it is closed
and opened again. An open file keeps its number, so no other file can be taken for it.
"""

from __future__ import annotations

import os
from pathlib import Path

# The device and the number of a file.
Identity = tuple[int, int]


def identity(path: Path) -> Identity:
    """Which file has this name now. Raises OSError."""
    status = path.lstat()
    return status.st_dev, status.st_ino


class Place:
    """The files that must be found under their names: the catalog and the lock."""

    __slots__ = ("_catalog", "_files")

    def __init__(self, catalog: tuple[Path, Identity], lock: tuple[Path, Identity]) -> None:
        self._files = [(str(path), *found) for path, found in (catalog, lock)]
        self._catalog = self._files[:1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._files == other._files

    __hash__ = None  # type: ignore[assignment]

    def loss(self, *, of_catalog: bool = False) -> str | None:
        """What has become of them, if they are not where they were.

        A change looks at the catalog alone, 3 us: a lock that is replaced for itself is no way to
        replace a store.
        """
        for path, device, number in self._catalog if of_catalog else self._files:
            try:
                found = os.lstat(path)
            except OSError as error:
                return _said("removed or moved", f"{path}: {error.strerror}")
            if found.st_ino != number or found.st_dev != device:
                return _said("replaced", f"{path} is another file now")
        return None


def _said(what: str, where: str) -> str:
    return f"it was {what} while it was open ({where}); close it and open it again"
