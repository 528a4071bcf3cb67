"""The room in LMDB's map: additions are refused before the map is full.

LMDB changes nothing in place: a deletion needs new pages too, and gets none once the map is full.
So LMDB gets a larger map than `map_size` says. Code that adds rows asks here first
(store/write/commit.py, store/durable/stage_files.py, store/notes.py); code that deletes them, a
checkpoint for example, does not ask and always finds room.

A reader that stays inside a transaction keeps all pages that were freed since: the file
grows with every commit and never shrinks. Such a reader cannot be ended from here; a warning names
its process.
"""

from __future__ import annotations

import collections.abc as abc
import logging
from pathlib import Path

import lmdb

from bloomstore.errors import StoreFailed

log = logging.getLogger("bloomstore")

# A reader that is this many commits behind stands still.
_FAR_BEHIND_COMMITS = 16
# A warning is due when a file of more than this has this many times the pages that are in use.
_SMALL_FILE_BYTES = 64 << 20
_WASTEFUL_RATIO = 8


class Room:
    """The room of one open environment."""

    def __init__(self, path: Path, environment: lmdb.Environment, map_size: int) -> None:
        self._file = path / "data.mdb"
        self._environment = environment
        self._map_size = map_size
        self._page_bytes = int(environment.stat()["psize"])
        self._noted = max(_SMALL_FILE_BYTES, 2 * self._taken())  # bytes that were found in order
        self._look_at = min(self._noted, map_size)

    def _taken(self) -> int:
        return (int(self._environment.info()["last_pgno"]) + 1) * self._page_bytes

    def require(self, live_bytes: abc.Callable[[], int]) -> None:
        """Raises StoreFailed if rows must be deleted before others are added. 1.5 us.

        `live_bytes` tells how many bytes are in use. Raises errors of LMDB, too (catalog.py).
        """
        taken = self._taken()
        if taken <= self._look_at:
            return
        self._environment.reader_check()
        live, holders = live_bytes(), self._holders()
        if taken > self._noted:
            self._noted = 2 * taken
            if taken > _WASTEFUL_RATIO * live:
                log.warning(
                    "%s has %d bytes, %d of them in use: processes %s keep what was freed since"
                    " they began to read",
                    self._file,
                    taken,
                    live,
                    holders,
                )
        self._look_at = min(self._noted, self._map_size)
        if taken <= self._map_size:
            return
        if live > self._map_size:
            what = f"{live} bytes are in use: drop filters, delete notes, or"
        elif holders:
            what = f"processes {holders} read and keep what was freed since: end them, or"
        else:
            return  # free pages are used again
        raise StoreFailed(
            f"{self._file} is full, its map_size is {self._map_size}: {what} open the store with a"
            " larger one"
        )

    def _holders(self) -> list[int]:
        """Processes that read the catalog as it was many commits ago."""
        last = int(self._environment.info()["last_txnid"])
        processes = set()
        for line in self._environment.readers().splitlines():
            process, _, transaction = [*line.split(), "", "", ""][:3]
            if transaction.isdigit() and int(transaction) < last - _FAR_BEHIND_COMMITS:
                processes.add(int(process))
        return sorted(processes)
