"""The LMDB environment: a crash while it is made leaves none or a whole one.

In: a folder, out: an open environment. py-lmdb is imported in this package only.

Invariants
  1. A new environment is made aside, synced, renamed into place, and the parent is synced: a
     catalog folder that exists is complete.
  2. Never writemap, map_async, sync=False, metasync=False or lock=False: they break durability.
  3. lock.mdb gets its disk space before LMDB maps it: LMDB would leave it sparse, and the 65th
     reader on a full disk would be SIGBUS.
  4. LMDB opens its files by name and follows links: both are seen to be plain files before.
  5. The data format is that of LMDB 0.9, even if py-lmdb's default is another one.

Not here: the tables (catalog.py, rows.py), whether data.mdb can be believed (pages.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lmdb

from bloomstore.catalog.pages import LARGEST_MAP
from bloomstore.crash import crash_point
from bloomstore.errors import DamagedFile, StoreFailed
from bloomstore.segment.mapping import allocate, open_file, sync_directory

TABLES = ("store", "filters", "stages", "blocks", "journal", "tombstones", "notes")
# Address space, not memory or disk: the file grows as rows come.
MAP_BYTES = 1 << 36
LEAST_MAP_BYTES = 1 << 20
LARGEST_MAP_BYTES = LARGEST_MAP // 2
MAX_READERS = 1024
_MAP_UNIT = 1 << 16  # whole pages, on every machine
LOCK_BYTES = 192 + 64 * (MAX_READERS - 1)  # the length that LMDB gives the file
ENGINE = 0  # LMDB 0.9: py-lmdb has LMDB 1.0 beside it, whose files no earlier one can read


def engine_version() -> str:
    """The version of the LMDB that writes catalogs. Raises StoreFailed if py-lmdb lacks it."""
    try:
        return ".".join(map(str, lmdb.version(lib_version=ENGINE)))
    except lmdb.Error as error:
        what = "catalogs have the data format of LMDB 0.9, and this build of py-lmdb has none"
        raise StoreFailed(f"{what}: {error}") from error


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


def open_environment(path: Path, *, read_only: bool, map_size: int = MAP_BYTES) -> lmdb.Environment:
    """Opens an existing environment. Raises DamagedFile or StoreFailed."""
    map_bytes = max(map_size, _length(path / "data.mdb"))
    try:
        environment = _open(path, read_only=read_only, create=False, map_bytes=map_bytes)
        try:
            environment.reader_check()
        except BaseException:
            environment.close()
            raise
    except lmdb.Error as error:
        raise StoreFailed(f"{path}: LMDB cannot open the catalog: {error}") from error
    return environment


def _open(
    path: Path, *, read_only: bool, create: bool, map_bytes: int = MAP_BYTES
) -> lmdb.Environment:
    """With an eighth more than was asked for, and 64 MiB: the room of deletions (room.py)."""
    _allocate_lock(path / "lock.mdb")
    map_bytes += map_bytes // 8 + (64 << 20)
    return lmdb.open(
        os.fsencode(path),
        map_size=map_bytes // _MAP_UNIT * _MAP_UNIT,
        max_dbs=len(TABLES),
        max_readers=MAX_READERS,
        readonly=read_only,
        create=create,
        mode=0o600,
        readahead=False,
        lib_version=ENGINE,
    )


def _allocate_lock(path: Path) -> None:
    """Gives LMDB's table of readers its disk space, before this process has it open.

    Where posix_fallocate is emulated it stores zeros to last bytes of places in the table, which
    are always zero: it does no harm to processes that use the table.
    """
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError:
        return  # a read-only disk; LMDB copes with it
    try:
        has_call = hasattr(os, "posix_fallocate")  # macOS has none
        if has_call and os.fstat(descriptor).st_blocks * 512 < LOCK_BYTES:
            allocate(descriptor, LOCK_BYTES)
    except OSError as error:
        raise StoreFailed(f"{path}: no space for its readers: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _length(path: Path) -> int:
    """Bytes of a plain file. Raises DamagedFile if it is none."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as error:
        raise DamagedFile(path, 0, f"cannot be read: {error.strerror}") from error
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
