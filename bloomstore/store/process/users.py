"""The processes that have a store open: each holds a shared flock on the file `users`.

A process that gets the flock exclusively is the only one; it recovers the store before others come
in. Openers come through a door, one after the other: an flock on the folder of the catalog.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from bloomstore.errors import DamagedFile, StoreFailed, StoreLocked
from bloomstore.segment.mapping import open_file, try_flock

_DOOR_SECONDS = 0.005  # between two tries


class Users:
    """The shared lock by which this process shows that it uses the store."""

    def __init__(self, path: Path, door: Path) -> None:
        self.path = path
        try:
            self._descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            raise DamagedFile(path, 0, "the users file of the store is missing") from None
        try:
            self._door = os.open(door, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreFailed(f"{door}: cannot be opened: {error.strerror}") from error

    def enter(self, seconds: float) -> bool:
        """Whether no other process has the store open; if so, later openers wait until `share`.

        An opener that is not alone therefore knows that an earlier one has looked at the store,
        and still has it open. Raises StoreLocked.
        """
        begin = time.monotonic()
        while not try_flock(self._door, fcntl.LOCK_EX):
            if time.monotonic() >= begin + seconds:
                raise StoreLocked(
                    f"{self.path}: another process has been opening the store for {seconds} s"
                )
            time.sleep(_DOOR_SECONDS)
        is_alone = try_flock(self._descriptor, fcntl.LOCK_EX)
        if not is_alone:
            self.share()
        return is_alone

    def share(self) -> None:
        """Holds the shared lock from now on, and lets the next opener in."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        self._shut_door()

    def _shut_door(self) -> None:
        door, self._door = self._door, -1
        if door >= 0:
            fcntl.flock(door, fcntl.LOCK_UN)  # a forked child may have a copy
            os.close(door)

    def close(self) -> None:
        """Releases the shared lock."""
        self._shut_door()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
