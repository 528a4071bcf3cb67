"""Check: reads everything, yields every problem, changes nothing.

It looks at every catalog row, every segment's header, length and bits (process/damage.py), and the
folder. A stage that is being changed, or whose filter is dirty, cannot be judged and is passed
over; a store that was closed is covered completely.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from pathlib import Path

from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.errors import (
    BloomStoreError,
    DamagedFile,
    DamagedRow,
    FilterNotFound,
    StoreFailed,
)
from bloomstore.segment.blocks import blocks_in
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES, segment_number
from bloomstore.segment.segment import Segment
from bloomstore.store.durable.trust import LOOKS
from bloomstore.store.process.damage import Damage, examine
from bloomstore.store.process.open_files import Core, missing_of


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of `check`, and where. filter_name: None for a problem of the whole store."""

    path: Path
    offset: int
    what: str
    filter_name: str | None = None

    def __str__(self) -> str:
        owner = f"filter {self.filter_name!r}: " if self.filter_name is not None else ""
        return f"{owner}{self.path}: at byte {self.offset}: {self.what}"


def check_store(core: Core, only: str | None = None) -> abc.Iterator[Problem]:
    """Every problem of the store, or of one filter."""
    if core.is_lost():
        yield Problem(core.folder.path, 0, str(core.loss))
        return
    catalog = core.folder.catalog / "data.mdb"
    with core.catalog.read() as view:
        names = view.filter_names()
    if only is not None and only not in names:
        raise FilterNotFound(only)
    try:
        with core.catalog.read() as view:
            for _ in view.journal():
                pass  # each row is checked while it is read
            next_number = view.counters().next_number
            tombstones = view.tombstones()
            damaged = [*view.damaged_rows("blocks"), *view.damaged_rows("notes")]
    except DamagedRow as error:
        yield Problem(catalog, 0, str(error))
        return
    for what in (core.doubt, *damaged) if only is None else ():
        if what is not None:
            yield Problem(catalog, 0, str(what))
    known: set[str] = set(tombstones.values())
    for name in names:
        try:
            with core.catalog.read() as view:
                row = view.filter_row(name)
                stages = [] if row is None else view.stage_rows(row.number)
        except (DamagedRow, StoreFailed) as error:
            yield Problem(catalog, 0, str(error), name)
            known.add("*")
            continue
        if row is None:
            continue
        known.update(stage.header(core.store_id).file_name for stage in stages)
        if only in (None, name):
            yield from _check_filter(core, row, stages)
    if only is None and "*" not in known:
        yield from _check_folder(core, known, next_number)


def _check_filter(core: Core, row: FilterRow, stages: list[StageRow]) -> abc.Iterator[Problem]:
    catalog = core.folder.catalog / "data.mdb"
    for what in missing_of(row, stages):
        yield Problem(catalog, 0, what, row.name)
    if row.dirty_boot not in (None, core.boot):
        what = "keys of durability 'process' were lost when the machine went down"
        yield Problem(catalog, 0, what, row.name)
    for stage in stages:
        yield from _check_stage(core, row, stage)


def _check_stage(core: Core, row: FilterRow, stage: StageRow) -> abc.Iterator[Problem]:
    path = core.folder.segments / stage.header(core.store_id).file_name
    if stage.poisoned is not None:
        yield Problem(path, 0, str(stage.poisoned), row.name)
    try:
        segment = core.segment(stage, writable=False)
        damage = _look(core, stage, segment)
    except DamagedFile as error:
        yield Problem(path, error.offset, error.what, row.name)
        return
    except OSError as error:
        yield Problem(path, 0, str(error.strerror), row.name)
        return
    except BloomStoreError as error:
        yield Problem(path, 0, str(error), row.name)
        return
    for sequence in damage.unapplied:
        what = f"journal row {sequence} is not applied"
        yield Problem(path, HEADER_BYTES, what, row.name)
    if damage.lacks_checksums:
        what = f"block checksums of segment {stage.number} are missing"
        yield Problem(core.folder.catalog / "data.mdb", 0, what, row.name)
    else:
        for block in damage.blocks:
            offset = HEADER_BYTES + block * BLOCK_BYTES
            yield Problem(path, offset, f"block {block} cannot be trusted", row.name)
        for block in sorted(blocks_in(stage.damaged).difference(damage.blocks)):
            what = f"block {block} was damaged and answers maybe; rebuild the filter"
            yield Problem(path, HEADER_BYTES + block * BLOCK_BYTES, what, row.name)
    if damage.set_bits is not None:
        what = f"{damage.set_bits[0]} bits are set, expected {damage.set_bits[1]}"
        yield Problem(path, HEADER_BYTES, what, row.name)


def _look(core: Core, stage: StageRow, segment: Segment) -> Damage:
    for _ in range(LOOKS):
        damage = examine(core, stage, segment)
        if damage is not None:
            return damage
    return Damage()


def _check_folder(core: Core, expected_names: set[str], next_number: int) -> abc.Iterator[Problem]:
    try:
        files = core.folder.segment_files()
    except StoreFailed as error:
        yield Problem(core.folder.segments, 0, str(error))
        return
    for path in files:
        if path.name in expected_names:
            continue
        if segment_number(path.name) >= next_number:
            what = "is newer than the catalog: the catalog was rolled back"
        else:
            what = "no catalog row names this file"
        yield Problem(path, 0, what)
