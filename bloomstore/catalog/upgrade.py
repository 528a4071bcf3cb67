"""Upgrades of the catalog's format: one function for each step to the next number.

    STEPS[0] makes format 2 of format 1, STEPS[1] makes 3 of 2, ...

The number is in the identity row; a catalog without one has format 1. A step and the number it
leads to are one commit: a crash leaves the old format or the new one. Opening a store for writing
upgrades it, if no other process has it open. Opening it read-only, or beside other processes, is
refused, and so is opening it with a library that is older than the store.

Segments are not rewritten: each header has the version that it was written with, and the readers of
all versions stay (segment/header.py). A step changes rows through `rows` and `put_row`, which know
no types: those of today cannot read what was written then.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import json

from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.frames import dump
from bloomstore.catalog.reasons import code_of_older_text
from bloomstore.catalog.rows import stage_key
from bloomstore.errors import StoreFailed, StoreLocked, StoreReadOnly, UnsupportedVersion

Step = abc.Callable[[CatalogChange], None]


def count_stages(change: CatalogChange) -> None:
    """Format 2: a filter's row counts the stages of its chains, so a missing one is noticed."""
    stages: collections.Counter[bytes] = collections.Counter()
    for key, _ in change.rows("stages"):
        stages[key[:12]] += 1  # filter and chain
    for key, payload in change.rows("filters"):
        plain = json.loads(payload)
        for chain, count in (("live_chain", "stages"), ("coming_chain", "coming_stages")):
            number = plain[chain]
            plain[count] = 0 if number is None else stages[stage_key(plain["number"], number)[:12]]
        change.put_row("filters", key, dump(plain))


def code_reasons(change: CatalogChange) -> None:
    """Format 3: the reasons of poisoned stages and of fences have codes beside their texts."""
    for key, payload in change.sound_rows("stages"):
        plain = json.loads(payload)
        text = plain["poisoned"]
        plain["poisoned_code"] = None if text is None else code_of_older_text(text)
        change.put_row("stages", key, dump(plain))
    for key, payload in change.sound_rows("filters"):
        plain = json.loads(payload)
        plain["fences"] = {
            token: {"code": code_of_older_text(text), "text": text}
            for token, text in plain["fences"].items()
        }
        change.put_row("filters", key, dump(plain))


STEPS: list[Step] = [count_stages, code_reasons]


def newest() -> int:
    """The format that this library writes."""
    return 1 + len(STEPS)


def bring_up(catalog: Catalog, *, is_alone: bool, doubt: str | None) -> None:
    """Takes every step that is left. Called under the writer lock, unless the catalog is read-only.

    Raises UnsupportedVersion, StoreReadOnly, StoreLocked or StoreFailed, and then has changed
    nothing: a catalog in doubt takes no changes.
    """
    with catalog.read() as view:
        present = view.identity().format
    if present > newest():
        raise UnsupportedVersion(catalog.path, present, newest())
    if present == newest():
        return
    old = f"{catalog.path} has format {present}, this library needs {newest()}"
    if catalog.read_only:
        raise StoreReadOnly(f"{old}: open it once for writing, which upgrades it")
    if not is_alone:
        raise StoreLocked(f"{old}: other processes have it open, close them for the upgrade")
    if doubt is not None:
        raise StoreFailed(f"{old}, and takes no changes: {doubt}")
    for number in range(present, newest()):
        with catalog.write() as change:
            STEPS[number - 1](change)
            change.set_format(number + 1)
