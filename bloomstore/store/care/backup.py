"""A consistent copy of a store that is in use.

Under the writer lock it makes a checkpoint and copies the catalog and every stage that may still
change. Sealed stages never change: their files are opened under the lock, so that a drop cannot
take them away, and copied after it, as many as there are descriptors for. Readers never wait,
writers for the small part only.

The copy becomes a store with the last step, the renaming of its catalog; it gets an incarnation of
its own. A restored copy lacks the keys that came after it: rebuild before you trust it as a
guard.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from bloomstore.catalog.catalog import Catalog
from bloomstore.errors import StoreFailed
from bloomstore.segment.mapping import copy_descriptor, make_folder, open_file, sync_directory
from bloomstore.store.durable import checkpoint, recovery
from bloomstore.store.durable.holding import writing
from bloomstore.store.process.folder import Folder, own_errors
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import make_lock_files

# Files of sealed stages that are copied after the lock; more of them would exhaust the descriptors.
_MOST_OPEN = 256
_PART_OPEN = 4  # and at most one in this many of the process's descriptors


def backup_store(core: Core, target: Folder) -> None:
    """Copies the store to a new or empty folder. Raises StoreFailed."""
    path = target.path
    with own_errors(f"write the backup at {path}"):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreFailed(f"{path}: not empty, and a backup goes into a new or empty folder")
        _copy(core, target)


def _copy(core: Core, target: Folder) -> None:
    make_folder(target.path)
    target.segments.mkdir(mode=0o700)
    make_lock_files(target.path)
    aside = target.path / f"backup.new.{os.getpid()}"  # no name that an unfinished store has
    aside.mkdir(mode=0o700)
    sealed: dict[str, int] = {}
    most_open = min(_MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART_OPEN)
    try:
        with writing(core):
            checkpoint.every_filter(core)
            with core.catalog.read() as view:
                stages = [
                    stage for row in view.filter_rows() for stage in view.stage_rows(row.number)
                ]
                # New filters beside these files are in doubt, in the copy too.
                forgotten = recovery.forgotten_files(core, view)
            core.catalog.copy(aside)
            for name in forgotten:
                source = open_file(core.folder.segments / name, os.O_RDONLY)
                _copy_file(source, target.segments / name)
            for stage in stages:
                name = stage.header(core.store_id).file_name
                source = open_file(core.folder.segments / name, os.O_RDONLY)
                if stage.sealed and len(sealed) < most_open:
                    sealed[name] = source
                else:
                    _copy_file(source, target.segments / name)
        for name in list(sealed):
            _copy_file(sealed.pop(name), target.segments / name)
    finally:
        for descriptor in sealed.values():
            os.close(descriptor)
    sync_directory(target.segments)
    catalog = Catalog(aside, read_only=False)
    with catalog.write() as change:
        change.renew_incarnation()
    catalog.close()
    sync_directory(aside)
    aside.rename(target.catalog)
    sync_directory(target.path)


def _copy_file(source: int, path: Path) -> None:
    """Copies an open file, durably, and closes it."""
    try:
        target = open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            copy_descriptor(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)
