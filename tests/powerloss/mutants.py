"""The library with one step of its order broken, to see that the tests would notice.

Each function breaks one rule in the process that calls it; MUTANTS names them. The program calls
one of them before it opens its store; the package itself knows nothing of this.
"""

from __future__ import annotations

import collections.abc as abc
import os
import time
from pathlib import Path
from typing import Any

import lmdb

from bloomstore import kernels
from bloomstore.catalog import catalog, environment
from bloomstore.catalog.change import CatalogChange
from bloomstore.segment import mapping
from bloomstore.segment import segment as segments
from bloomstore.segment.mapping import sync_directory
from bloomstore.segment.segment import Segment
from bloomstore.store import store
from bloomstore.store.durable import checkpoint, recovery, stage_files
from bloomstore.store.process import folder, open_files
from bloomstore.store.process.words import GENERATION
from bloomstore.store.write import commit, counts
from bloomstore.store.write.group_commit import Group


def nothing(*_: Any, **__: Any) -> None:
    """A step that is left out."""


def _replace(module: Any, name: str, new: Any) -> Any:
    """Puts a function in the place of another, which must be there; returns the old one."""
    old = getattr(module, name)
    setattr(module, name, new)
    return old


def acknowledge_early() -> None:
    """An add returns before its journal row is committed: the next call commits it."""
    waiting: list[abc.Callable[[], object]] = []

    def catch_up() -> None:
        while waiting:
            waiting.pop(0)()

    def add(self: Group, core: Any, view: Any, prints: Any, **named: Any) -> int:
        catch_up()
        waiting.append(lambda: real_add(self, core, view, prints, **named))
        return len(prints)

    def close(self: store.Store) -> None:
        catch_up()
        real_close(self)

    real_add = _replace(Group, "add", add)
    real_close = _replace(store.Store, "close", close)


def no_msync() -> None:
    """A checkpoint deletes the journal without having synced the mapped bits: neither half."""
    _replace(Segment, "sync", nothing)


def delete_the_journal_first() -> None:
    """A checkpoint deletes the journal and syncs the bits afterwards."""
    waiting: list[Segment] = []

    def and_then_sync(real: abc.Callable[..., None]) -> abc.Callable[..., None]:
        def whole(*arguments: Any) -> None:
            real(*arguments)
            while waiting:
                waiting.pop()._file.sync_memory()

        return whole

    _replace(Segment, "sync", lambda self: waiting.append(self))
    for name in ("every_filter", "seal"):
        _replace(checkpoint, name, and_then_sync(getattr(checkpoint, name)))


def no_directory_fsync() -> None:
    """New and removed names are not synced."""
    for module in (mapping, segments, stage_files, environment, folder):
        _replace(module, "sync_directory", nothing)


def no_fsync_of_new_files() -> None:
    """A new file is published before its bytes are on the device."""
    _replace(segments, "sync_descriptor", nothing)


def retry_a_failed_sync() -> None:
    """A sync that failed is tried again, and its success believed."""

    def sync(self: Segment) -> None:
        try:
            real(self)
        except OSError:
            real(self)

    real = _replace(Segment, "sync", sync)


def no_tombstone() -> None:
    """A new file is made without a tombstone that names it."""

    def put(self: CatalogChange, number: int, file_name: str, reason: str) -> None:
        if reason != "unfinished":
            real(self, number, file_name, reason)

    real = _replace(CatalogChange, "put_tombstone", put)


def no_tombstone_at_drop() -> None:
    """A dropped file is unlinked without a tombstone that names it."""
    paths: list[Path] = []

    def put(self: CatalogChange, number: int, file_name: str, reason: str) -> None:
        if reason == "unfinished":
            real_put(self, number, file_name, reason)
        else:
            paths.append(Path(file_name))

    def bury(shared: open_files.Core) -> None:
        real_bury(shared)
        while paths:
            (shared.folder.segments / paths.pop()).unlink()

    real_put = _replace(CatalogChange, "put_tombstone", put)
    real_bury = _replace(stage_files, "bury", bury)


def catalog_made_in_place() -> None:
    """The catalog of a new store is made under its name, not aside."""

    def make(path: Path, first_rows: dict[str, dict[bytes, bytes]]) -> None:
        path.mkdir()
        opened = lmdb.open(
            os.fspath(path), map_size=environment.MAP_BYTES, max_dbs=len(environment.TABLES)
        )
        tables = {name: opened.open_db(name.encode()) for name in environment.TABLES}
        with opened.begin(write=True) as transaction:
            for table, rows in first_rows.items():
                for key, value in rows.items():
                    transaction.put(key, value, db=tables[table])
        opened.close()
        sync_directory(path)
        sync_directory(path.parent)

    _replace(catalog, "make_environment", make)


def folders_above_not_synced() -> None:
    """The folders above a new store are made without a sync."""
    _replace(folder, "make_folder", lambda path: path.mkdir(parents=True, exist_ok=True))


def catalogs_name_not_settled() -> None:
    """Who opens a store first believes that its maker has synced the catalog's name."""
    _replace(folder.Folder, "sync_name", nothing)


def not_marked_dirty() -> None:
    """Adds of durability `process` do not say first that the catalog is behind."""
    _replace(counts, "mark_dirty", nothing)


def apply_outside_the_lock() -> None:
    """The bits are set after the writer lock was given back."""
    waiting: list[tuple[Any, ...]] = []

    def add(self: Group, *arguments: Any, **named: Any) -> int:
        added = real_add(self, *arguments, **named)
        while waiting:
            slow_apply(*waiting.pop(0))
        return added

    def write(*arguments: Any) -> int:
        now = kernels.apply
        kernels.apply = lambda *arguments: waiting.append(arguments)
        try:
            return real_write(*without_handle(arguments))
        finally:
            kernels.apply = now

    real_add = _replace(Group, "add", add)
    real_write = _replace(commit, "write", write)


def applied_slowly() -> None:
    """Not broken: bits are set under the lock, but in a way that shows when they are not."""
    _replace(kernels, "apply", slow_apply)
    real_write: Any = _replace(
        commit, "write", lambda *arguments: real_write(*without_handle(arguments))
    )


def without_handle(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of commit.write, so that the bits of a single key are set by `kernels.apply`, too."""
    return arguments[:3]


def slow_apply(vector: Any, geometry: Any, prints: Any) -> None:
    """Sets bits as a kernel without atomic operations may, with its moment of danger drawn out."""
    changed = vector.copy()
    fast_apply(changed, geometry, prints)
    time.sleep(0.004)
    touched = changed != vector
    vector[touched] = changed[touched]
    # What another process has set meanwhile in the same bytes is gone, as with `byte |= bit`.


fast_apply = kernels.apply


def generation_word_not_repaired() -> None:
    """The next holder of the lock leaves the generation word as a dead one left it."""

    def finish(shared: open_files.Core) -> None:
        before = shared.words[GENERATION]
        real(shared)
        shared.words[GENERATION] = before

    real = _replace(recovery, "finish", finish)


MUTANTS: dict[str, abc.Callable[[], None]] = {
    "acknowledge early": acknowledge_early,
    "no msync": no_msync,
    "delete the journal first": delete_the_journal_first,
    "no directory fsync": no_directory_fsync,
    "retry a failed sync": retry_a_failed_sync,
    "apply outside the lock": apply_outside_the_lock,
    "generation word not repaired": generation_word_not_repaired,
    "no tombstone": no_tombstone,
    "no tombstone at drop": no_tombstone_at_drop,
    "no fsync of new files": no_fsync_of_new_files,
    "catalog made in place": catalog_made_in_place,
    "not marked dirty": not_marked_dirty,
    "folders above not synced": folders_above_not_synced,
    "catalog's name not settled": catalogs_name_not_settled,
}
