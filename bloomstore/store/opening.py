"""`bloomstore.open`: find or make the folder, refuse what cannot be trusted, share what is open."""

from __future__ import annotations

import os
from pathlib import Path

from bloomstore.catalog.rows import Durability
from bloomstore.errors import SpecError, StoreFailed, StoreNotFound
from bloomstore.store import registry
from bloomstore.store.folder import Folder, check_platform
from bloomstore.store.options import StoreOptions
from bloomstore.store.store import Store


def open_store(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "commit",
    lock_seconds: float = 60.0,
    unsafe_filesystem: bool = False,
) -> Store:
    """Opens the store at `path`; makes it if it is missing, unless read_only or create=False.

    durability is the default for filters created through this handle. A second open of the same
    path in one process returns the same object; options that differ raise SpecError.
    """
    options = StoreOptions(
        read_only=read_only,
        durability=durability,
        lock_seconds=lock_seconds,
        unsafe_filesystem=unsafe_filesystem,
    )
    folder = Folder(Path(path))
    check_platform(folder.path, unsafe_filesystem=unsafe_filesystem)
    if not folder.is_store and (read_only or not create):
        if not folder.path.exists():
            raise StoreNotFound(folder.path)
        folder.require()
    with registry.lock:
        if not folder.is_store:
            _make(folder)
        folder.require()
        store = registry.find(folder.path)
        if store is not None:
            if store.options != options:
                raise SpecError(
                    f"{folder.path} is already open in this process with {store.options},"
                    f" asked for {options}"
                )
            store.users += 1
            return store
        store = Store(folder, options)
        registry.remember(store)
        return store


def _make(folder: Folder) -> None:
    try:
        folder.make()
    except OSError as error:
        raise StoreFailed(f"cannot make a store at {folder.path}: {error.strerror}") from error
