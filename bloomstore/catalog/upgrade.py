"""Upgrades of the catalog's format: one function for each step to the next number.

    STEPS[0] makes format 2 of format 1, STEPS[1] makes 3 of 2, ...

The number is in the identity row; a catalog without one has format 1. A step and the number it
leads to are one commit: a crash leaves the old format or the new one. Whoever opens a store for
writing upgrades it, alone; whoever may only read, or finds others at work, is refused, and so is a
library that is older than the store.

Segments are not rewritten: each header has the version that it was written with, and the readers of
all versions stay (segment/header.py). A step changes rows through `rows` and `put_row`, which know
no types: those of today cannot read what was written then.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.view import CatalogChange
from bloomstore.errors import StoreLocked, StoreReadOnly, UnsupportedVersion

Step = abc.Callable[[CatalogChange], None]

STEPS: list[Step] = []


def newest() -> int:
    """The format that this library writes."""
    return 1 + len(STEPS)


def bring_up(catalog: Catalog, *, is_alone: bool) -> None:
    """Takes every step that is left. Called under the writer lock, unless the catalog is read-only.

    Raises UnsupportedVersion, StoreReadOnly or StoreLocked, and then has changed nothing.
    """
    with catalog.read() as view:
        found = view.identity().format
    if found > newest():
        raise UnsupportedVersion(catalog.path, found, newest())
    if found == newest():
        return
    old = f"{catalog.path} has format {found}, this library needs {newest()}"
    if catalog.read_only:
        raise StoreReadOnly(f"{old}: open it once for writing, that upgrades it")
    if not is_alone:
        raise StoreLocked(f"{old}: other processes have it open, close them for the upgrade")
    for number in range(found, newest()):
        with catalog.write() as change:
            STEPS[number - 1](change)
            change.set_format(number + 1)
