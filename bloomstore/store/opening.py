"""`bloomstore.open`: find or make the folder, refuse what cannot be trusted, share what is open."""

from __future__ import annotations

import collections.abc as abc
import contextlib
import os

from bloomstore.catalog.environment import MAP_BYTES
from bloomstore.catalog.rows import Durability
from bloomstore.errors import SpecError, StoreFailed, StoreNotFound
from bloomstore.held import whole
from bloomstore.store import registry
from bloomstore.store.folder import Folder, check_platform
from bloomstore.store.options import StoreOptions
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
    check_platform(folder.path, unsafe_filesystem=unsafe_filesystem)
    if not folder.is_store and (read_only or not create):
        if not folder.path.exists():
            raise StoreNotFound(folder.path)
        folder.require()
    with registry.lock:
        if not folder.is_store:
            with _own_errors("make", folder):
                folder.make()
        folder.require()
        store = registry.find(folder)
        if store is not None:
            if store.options != options:
                raise SpecError(
                    f"{folder.path} is already open in this process with {store.options},"
                    f" asked for {options}"
                )
            store.core.catalog.require_alive()
            store.users += 1
            return store
        with _own_errors("open", folder):
            store = Store(folder, options)
        try:
            registry.remember(store)
            store.core.end(is_done=True)
        except BaseException:
            registry.forget(store)
            store.core.close()
            raise
        return store


@contextlib.contextmanager
def _own_errors(what: str, folder: Folder) -> abc.Iterator[None]:
    """Says which file the operating system has refused."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename is not None else ""
        message = f"cannot {what} the store at {folder.path}: {error.strerror}{where}"
        raise StoreFailed(message) from error
