"""The folder of a store: its parts, making a new one, and whether its file system is suitable.

    store/
      catalog/     the LMDB environment
      lock         the writer lock and a page of words
      users        every process that has the store open holds an flock on it
      segments/    one file per stage

Invariants
  1. A new store becomes one when its catalog is renamed into place, last: a crash before leaves a
     folder that the next `open` finishes.
  2. Only an empty folder, or one with an unfinished store, becomes a store. Foreign files are never
     touched.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import functools
import os
import re
import stat
import sys
import time
import warnings
from pathlib import Path

from bloomstore.catalog import upgrade
from bloomstore.catalog.catalog import make_catalog
from bloomstore.crash import crash_point
from bloomstore.errors import (
    NotAStore,
    SpecError,
    StoreFailed,
    StoreNotFound,
    UnsupportedFilesystem,
    UnsupportedPlatform,
)
from bloomstore.segment.mapping import make_folder, sync_directory
from bloomstore.store.process.words import make_lock_files

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "lustre"}
_VOLATILE = {"tmpfs", "ramfs"}
_OURS = {"lock", "users", "segments"}


class Folder:
    """Paths of one store."""

    __slots__ = ("catalog", "data", "lock", "path", "segments", "users")

    def __init__(self, given: str | os.PathLike[str]) -> None:
        """Resolves the path now, so that a later `chdir` does not lead to another store."""
        try:
            path = Path(given).absolute()
            is_name = b"\0" not in os.fsencode(path)
        except FileNotFoundError:
            raise StoreNotFound(Path(given), "the current folder is gone") from None
        except (TypeError, UnicodeEncodeError):
            is_name = False
        if not is_name:
            raise SpecError(f"a store's path is a str or a Path, without NUL, got {given!r}")
        self.path = path
        self.catalog = path / "catalog"
        self.data = self.catalog / "data.mdb"
        self.lock = path / "lock"
        self.users = path / "users"
        self.segments = path / "segments"

    @property
    def is_store(self) -> bool:
        """Whether a finished store is here."""
        return self.catalog.is_dir()

    def make(self) -> None:
        """Makes a new store here, or finishes one that a crash left unfinished."""
        if self.path.exists() and not self.path.is_dir():
            raise NotAStore(self.path, "it is a file")
        make_folder(self.path)
        foreign = sorted(
            entry.name
            for entry in self.path.iterdir()
            if entry.name not in _OURS and not entry.name.startswith("catalog.new.")
        )
        if self.is_store:
            return  # another process has made it
        if foreign:
            raise NotAStore(self.path, f"the folder is not empty, it has {foreign[0]!r}")
        crash_point("create store: folder made")
        with contextlib.suppress(FileExistsError):
            self.segments.mkdir(mode=0o700)
        self._require_folder(self.segments)
        make_lock_files(self.path)
        sync_directory(self.path)
        crash_point("create store: segments folder made")
        make_catalog(self.catalog, time.time(), upgrade.newest())
        crash_point("create store: catalog in place")

    def sync_name(self) -> None:
        """Makes the catalog's name durable: its maker may have died between rename and sync."""
        try:
            sync_directory(self.path)
        except OSError as error:
            raise StoreFailed(f"{self.path}: sync failed: {error.strerror}") from error

    def require(self) -> None:
        """Raises unless a finished store is here."""
        if not self.path.exists():
            raise StoreNotFound(self.path)
        if not self.path.is_dir():
            raise NotAStore(self.path, "it is a file")
        for folder in (self.catalog, self.segments):
            self._require_folder(folder)

    def segment_files(self) -> list[Path]:
        """All files in the folder of segments, by name. Raises StoreFailed."""
        try:
            return sorted(self.segments.iterdir())
        except OSError as error:
            what = f"cannot be listed: {error.strerror}"
            raise StoreFailed(f"{self.segments}: {what}") from error

    def _require_folder(self, folder: Path) -> None:
        """Raises unless this part is a folder itself: a link could lead to foreign files."""
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            raise NotAStore(self.path, f"it has no {folder.name} folder") from None
        if stat.S_ISLNK(mode):
            what = "is a symbolic link; make links to the store's own folder only"
            raise NotAStore(self.path, f"{folder.name} {what}")
        if not stat.S_ISDIR(mode):
            raise NotAStore(self.path, f"{folder.name} is not a folder")


@contextlib.contextmanager
def own_errors(what: str) -> abc.Iterator[None]:
    """Turns errors of the operating system inside into StoreFailed, with the file's name.

    Questions can fail as well: whether a path exists cannot be asked if the path is too long.
    """
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename is not None else ""
        raise StoreFailed(f"cannot {what}: {error.strerror}{where}") from error


def check_platform(path: Path, *, unsafe_filesystem: bool) -> None:
    """Raises where the promise cannot be kept; warns where it ends with the machine's uptime."""
    if sys.platform == "win32":
        raise UnsupportedPlatform("Windows is not supported by this version")
    kind = _filesystem(path)
    if kind in _NETWORK and not unsafe_filesystem:
        raise UnsupportedFilesystem(
            f"{path} is on {kind}: locks and memory maps are not shared between hosts;"
            " unsafe_filesystem=True opens it nevertheless"
        )
    if kind in _VOLATILE:
        warnings.warn(f"{path} is on {kind}: nothing survives a reboot", stacklevel=4)


def _filesystem(path: Path) -> str:
    """Type of the file system that holds the path, or '' where it cannot be known."""
    try:
        with open("/proc/self/mounts", "rb", buffering=0) as file:  # noqa: PTH123  (8 us less)
            lines = file.readall().decode(errors="replace").splitlines()
    except OSError:
        return ""
    target = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        _, mount, found, _ = line.split(" ", 3)
        if "\\" in mount:
            mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount)
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


@functools.cache
def boot_id() -> str:
    """Names the present boot of the machine; a new one means memory was lost. Raises StoreFailed.

    Only systems without a boot id get another name: an id that cannot be read for a moment, for
    want of a descriptor, must not look like another boot.
    """
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return f"started {int(time.time() - time.monotonic())}"
    except OSError as error:
        what = f"cannot be read: {error.strerror}; open the store again when it can"
        raise StoreFailed(f"{path}: {what}") from error
