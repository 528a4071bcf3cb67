"""A lock for statements under AUTOCOMMIT: a build must not take its snapshot between key and row.

Such a statement has no transaction that a build could see and wait for between the moment its keys
are durable and the moment the server begins to run it. So each statement holds a shared flock on a
file of the store's folder during that time, and the build takes it exclusively once. The lock of a
killed process ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import time
from io import FileIO
from pathlib import Path
from typing import Any

from bloomstore.errors import StoreFailed
from bloomstore.segment.mapping import open_file
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.databases.lock_holders import holders
from bloomstore.sql.databases.queries import pause

FILE_NAME = "sql.lock"
PAUSE_SECONDS = 0.005  # between two tries to take the lock


class AutocommitLock:
    """The lock of one store. Safe in several threads: each statement has its own file handle."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._held: dict[Any, FileIO] = {}  # by execution context; closing the file unlocks it

    def hold(self, context: Any) -> None:
        """Takes the lock for one statement, before its keys are made durable."""
        if context not in self._held:
            self._held[context] = file = self._open()
            fcntl.flock(file, fcntl.LOCK_SH)

    def release(self, context: Any) -> None:
        """Releases the lock after the statement has succeeded or failed, if it was held."""
        if (file := self._held.pop(context, None)) is not None:
            file.close()

    def wait(self, patience: float) -> None:
        """Waits for the statements that hold the lock at the call. Raises StillOpen."""
        ends = time.monotonic() + patience
        with self._open() as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > ends:
                        by = holders(self._path)
                        raise StillOpen(f"statements under AUTOCOMMIT of {by}") from None
                    pause(PAUSE_SECONDS)
                else:
                    return

    def _open(self) -> FileIO:
        try:
            return FileIO(open_file(self._path, os.O_RDWR | os.O_CREAT), "r+")
        except OSError as error:
            raise StoreFailed(f"{self._path}: {error.strerror}") from error
