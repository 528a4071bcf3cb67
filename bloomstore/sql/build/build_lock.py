"""One builder at a time: builds and rebuilds of the guards of one store take turns.

Workers that are started together all build; each build leaves a token in the database and writes
it into the record, so two at once would leave the token of one and the record of the other, and the
guard would not be believed. The lock is a flock on a file of the store's folder; the lock of a
killed process ends with the process.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bloomstore.errors import StoreFailed
from bloomstore.segment.mapping import open_file
from bloomstore.sql.databases.queries import pause

log = logging.getLogger("bloomstore.sql")

FILE_NAME = "build.lock"


@contextmanager
def only_builder(folder: Path) -> Iterator[None]:
    """Waits for other builds of this store's guards; inside the block none runs."""
    try:
        descriptor = open_file(folder / FILE_NAME, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StoreFailed(f"{folder / FILE_NAME}: {error.strerror}") from error
    try:
        is_told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_told:
                    log.info("waiting for another build of the store %s", folder)
                    is_told = True
                pause(0.02)  # under asyncio the other one may be a task of this thread
        yield
    finally:
        os.close(descriptor)
