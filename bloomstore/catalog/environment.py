"""The LMDB environment: made so that a crash leaves none or a whole one, opened with care.

In: a folder, out: an open environment. py-lmdb is imported in this package only.

Invariants
  1. A new environment is made aside, synced, renamed into place, and the parent is synced: a
     catalog folder that exists is complete.
  2. Never writemap, map_async, sync=False, metasync=False or lock=False: they trade the promise.
  3. data.mdb is compared with its own meta pages before LMDB maps it: a shortened file would be
     SIGBUS at the first read. lock.mdb gets its disk space before LMDB maps it: LMDB would leave it
     sparse, and the 65th reader on a full disk would be SIGBUS.

Not here: what is in the tables (catalog.py, rows.py).
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import lmdb

from bloomstore.crash import crash_point
from bloomstore.errors import DamagedFile, StoreFailed
from bloomstore.segment.mapping import allocate, sync_directory

TABLES = ("store", "filters", "stages", "blocks", "journal", "tombstones", "notes")
# Address space, not memory or disk: the file grows as rows come.
MAP_BYTES = 1 << 36
MAX_READERS = 1024
LOCK_BYTES = 192 + 64 * (MAX_READERS - 1)  # what LMDB makes of it

_META_OFFSET = 16  # after the page header
_META_MAGIC = 0xBEEFC0DE
_META = struct.Struct("<II QQ I44x 48x QQ")  # magic version, address mapsize, page size, last, txn


def make_environment(path: Path, first_rows: dict[str, dict[bytes, bytes]]) -> None:
    """Creates the environment at `path` with these rows, or leaves nothing under that name."""
    aside = path.with_name(f"{path.name}.new.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    try:
        environment = _open(aside, read_only=False, create=True)
        try:
            tables = {name: environment.open_db(name.encode()) for name in TABLES}
            with environment.begin(write=True) as transaction:
                for table, rows in first_rows.items():
                    for key, value in rows.items():
                        transaction.put(key, value, db=tables[table])
            environment.sync(True)
        finally:
            environment.close()
        sync_directory(aside)
        if _rename(aside, path):
            crash_point("create store: catalog renamed")
            sync_directory(path.parent)
    except lmdb.Error as error:
        raise StoreFailed(f"{path}: LMDB cannot make the catalog: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _rename(aside: Path, path: Path) -> bool:
    """Puts a new environment in its place; False when another process was faster."""
    try:
        aside.rename(path)
    except OSError:
        if path.is_dir():
            return False
        raise
    return True


def open_environment(path: Path, *, read_only: bool) -> lmdb.Environment:
    """Opens an existing environment. Raises DamagedFile or StoreFailed."""
    check_length(path / "data.mdb")
    try:
        environment = _open(path, read_only=read_only, create=False)
        environment.reader_check()
    except lmdb.Error as error:
        raise StoreFailed(f"{path}: LMDB cannot open the catalog: {error}") from error
    return environment


def _open(path: Path, *, read_only: bool, create: bool) -> lmdb.Environment:
    _allocate_lock(path / "lock.mdb")
    return lmdb.open(
        os.fsencode(path),
        map_size=MAP_BYTES,
        max_dbs=len(TABLES),
        max_readers=MAX_READERS,
        readonly=read_only,
        create=create,
        mode=0o600,
        readahead=False,
    )


def _allocate_lock(path: Path) -> None:
    """Gives LMDB's table of readers its disk space, before this process has it open.

    Where posix_fallocate is emulated it stores zeros to last bytes of places in the table, which
    are always zero: it does no harm to processes that use the table.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # a disk that may only be read; LMDB knows what to do
    try:
        if os.fstat(descriptor).st_blocks * 512 < LOCK_BYTES:
            allocate(descriptor, LOCK_BYTES)
    except OSError as error:
        raise StoreFailed(f"{path}: no space for its readers: {error.strerror}") from error
    finally:
        os.close(descriptor)


def check_length(path: Path) -> None:
    """Raises DamagedFile when data.mdb is shorter than its newest meta page says it is."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 17)
            length = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DamagedFile(path, 0, f"cannot be read: {error.strerror}") from error
    if len(head) < _META_OFFSET + _META.size:
        raise DamagedFile(path, len(head), "too short for an LMDB meta page")
    metas = [_META.unpack_from(head, _META_OFFSET)]
    page_bytes = metas[0][4]
    second = page_bytes + _META_OFFSET
    if metas[0][0] == _META_MAGIC and len(head) >= second + _META.size:
        metas.append(_META.unpack_from(head, second))
    sound = [meta for meta in metas if meta[0] == _META_MAGIC]
    if not sound:
        raise DamagedFile(path, _META_OFFSET, "no LMDB meta page")
    last_page = max(sound, key=lambda meta: meta[6])[5]
    needed = (last_page + 1) * page_bytes
    if length < needed:
        raise DamagedFile(path, length, f"file ends here, its meta page says {needed} bytes")
