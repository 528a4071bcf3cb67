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
import weakref
from io import FileIO
from pathlib import Path

from sqlalchemy.engine import Connection

from bloomstore.sql.databases.facts import StillOpen, pause

FILE_NAME = "sql.lock"


def is_autocommit(connection: Connection) -> bool:
    """Whether each statement of the connection is a transaction of its own."""
    return bool(
        connection.dialect.detect_autocommit_setting(
            connection.connection.dbapi_connection  # type: ignore[arg-type]
        )
    )


class Flight:
    """The lock of one store."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        # The file closes, and the lock ends, with a connection that is lost without a word.
        self.held: weakref.WeakKeyDictionary[Connection, FileIO] = weakref.WeakKeyDictionary()

    def take_off(self, connection: Connection) -> bool:
        """Before the keys are made durable; whether it was on the ground."""
        if connection not in self.held:
            file = self._open()
            fcntl.flock(file, fcntl.LOCK_SH)
            self.held[connection] = file
            return True
        return False

    def land(self, connection: Connection) -> None:
        """After the statement has ended, however it did."""
        if (file := self.held.pop(connection, None)) is not None:
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
                        raise StillOpen("statements under AUTOCOMMIT") from None
                    pause(0.005)
                else:
                    return

    def _open(self) -> FileIO:
        return FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
