"""Statements in flight under AUTOCOMMIT: a build must not take its snapshot between key and row.

An autocommit statement has no transaction that a build could see and wait for between the moment
its keys are durable and the moment the server begins to run it. So each holds a shared lock on a
file of the store's folder meanwhile, and the build takes it exclusively once. The lock of a killed
process is gone with it.
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


class Flight:
    """The lock of one store."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._held: dict[Any, FileIO] = {}  # by execution context; closing it ends the lock

    def take_off(self, context: Any) -> None:
        """Before the keys are made durable."""
        if context not in self._held:
            self._held[context] = file = self._open()
            fcntl.flock(file, fcntl.LOCK_SH)

    def land(self, context: Any) -> None:
        """After the statement has ended, however it did."""
        if (file := self._held.pop(context, None)) is not None:
            file.close()

    def wait(self, patience: float) -> None:
        """Returns when every statement that was in flight at the call has landed."""
        ends = time.monotonic() + patience
        with self._open() as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > ends:
                        by = holders(self._path)
                        raise StillOpen(f"statements under AUTOCOMMIT of {by}") from None
                    pause(0.005)
                else:
                    return

    def _open(self) -> FileIO:
        try:
            return FileIO(open_file(self._path, os.O_RDWR | os.O_CREAT), "r+")
        except OSError as error:
            raise StoreFailed(f"{self._path}: {error.strerror}") from error
