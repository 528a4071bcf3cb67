"""`bloomstore.open`: finds or makes the folder, and shares a store that is open already."""

from __future__ import annotations

import os

from bloomstore.catalog.environment import MAP_BYTES
from bloomstore.catalog.rows import Durability
from bloomstore.errors import SpecError, StoreNotFound
from bloomstore.held import whole
from bloomstore.store.options import StoreOptions
from bloomstore.store.process import open_stores
from bloomstore.store.process.folder import Folder, check_platform, own_errors
from bloomstore.store.store import Store


@whole
def open_store(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "commit",
    lock_seconds: float = 60.0,
    unsafe_filesystem: bool = False,
    map_size: int = MAP_BYTES,
) -> Store:
    """Opens the store at `path`; makes it if it is missing, unless read_only or create=False.

    durability is the default for filters created through this handle. map_size is how many bytes
    the catalog may take: all rows and the journal, not the bits of filters. A second open of
    the same path in one process returns the same object; options that differ raise SpecError.
    """
    options = StoreOptions(
        read_only=read_only,
        durability=durability,
        lock_seconds=lock_seconds,
        unsafe_filesystem=unsafe_filesystem,
        map_size=map_size,
    )
    folder = Folder(path)
    opening = f"open the store at {folder.path}"
    with own_errors(opening):
        check_platform(folder.path, unsafe_filesystem=unsafe_filesystem)
        if not folder.is_store and (read_only or not create):
            if not folder.path.exists():
                raise StoreNotFound(folder.path)
            folder.require()
    with open_stores.lock:
        with own_errors(opening):
            if not folder.is_store:
                with own_errors(f"make the store at {folder.path}"):
                    folder.make()
            folder.require()
        store = open_stores.find(folder)
        if store is not None:
            assert isinstance(store, Store)
            if store.options != options:
                raise SpecError(
                    f"{folder.path} is already open in this process with {store.options},"
                    f" asked for {options}"
                )
            store._core.catalog.require_alive()
            store._users += 1
            return store
        with own_errors(opening):
            store = Store(folder, options)
        try:
            open_stores.remember(store)
            store._core.end(is_done=True)
        except BaseException:
            open_stores.forget(store)
            store._core.close()
            raise
        return store
