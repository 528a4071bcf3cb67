"""Whether the path of an open store still leads to its open files.

A folder may be removed, moved, or replaced, for example by a restored copy, while processes
have it open. Their files live on without names, and these processes would keep answering and
acknowledging, unseen by every process that opens the path afterwards. The loss is noticed by:

    a change           before it is acknowledged, and before a file is made or unlinked by its path
    a kept lock        adds of durability `process` make no call: the thread that watches the kept
                       lock (kept_lock.py) looks every 5 ms
    lookups            one thread of the process looks at every open store (watch.py)

Then the store is lost for this process: it takes no changes and answers "maybe" until it is closed
and opened again. An open file keeps its number, so no other file can be taken for it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# The device and the number of a file.
Identity = tuple[int, int]

# Two changes of a folder may get the same time stamp, so a stamp is believed only when it is older
# than this, and never on file systems that store whole seconds only.
_GRAIN_NS = 100_000_000
_SECOND_NS = 1_000_000_000


def identity(path: Path) -> Identity:
    """Which file has this name now. Raises OSError."""
    status = path.lstat()
    return status.st_dev, status.st_ino


class Place:
    """The files that must be found under their names: the catalog and the lock."""

    __slots__ = ("_catalog", "_files", "_folder", "_stamp")

    def __init__(self, catalog: tuple[Path, Identity], lock: tuple[Path, Identity]) -> None:
        self._files = [(str(path), *found) for path, found in (catalog, lock)]
        self._catalog = self._files[:1]
        self._folder = str(catalog[0].parent)
        self._stamp: tuple[int, ...] | None = None  # of the folder, when the catalog was in it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._files == other._files

    __hash__ = None  # type: ignore[assignment]

    def loss(self, *, of_catalog: bool = False) -> str | None:
        """How the files were lost; None while they are where they were.

        A change looks at the catalog alone, 3 us: replacing only the lock file is no way to
        replace a store. It looks at the catalog's folder, whose time changes when a file in it is
        replaced. When a kernel is asked for the times of a file, it gives the next write its
        own time, and each commit to the catalog would take 50 us longer.
        """
        if of_catalog:
            return self._loss_of_catalog()
        return self._loss_of(self._files)

    def _loss_of_catalog(self) -> str | None:
        try:
            found = os.lstat(self._folder)
        except OSError:
            return self._loss_of(self._catalog)
        stamp = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
        if stamp == self._stamp:
            return None
        loss = self._loss_of(self._catalog)
        is_fine = found.st_mtime_ns % _SECOND_NS and found.st_ctime_ns % _SECOND_NS
        if loss is None and is_fine and time.time_ns() > max(stamp[2:]) + _GRAIN_NS:
            self._stamp = stamp
        return loss

    @staticmethod
    def _loss_of(files: list[tuple[str, int, int]]) -> str | None:
        for path, device, number in files:
            try:
                found = os.lstat(path)
            except OSError as error:
                return _said("removed or moved", f"{path}: {error.strerror}")
            if found.st_ino != number or found.st_dev != device:
                return _said("replaced", f"{path} is another file now")
        return None


def _said(what: str, where: str) -> str:
    return f"it was {what} while it was open ({where}); close it and open it again"
