"""Reading everything and yielding what is wrong, all of it, changing nothing.

Looks at every catalog row, every segment's header, length and block checksums, the counts, the
journal and the folder. Blocks of an active stage that the journal touches, or whose filter is
dirty, have changed since their checksums were made and are passed over; so a store that nobody
writes to is covered completely after a clean close.
"""

from __future__ import annotations

import collections.abc as abc
from pathlib import Path

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, JournalRow, StageRow
from bloomstore.errors import (
    BloomStoreError,
    DamagedFile,
    DamagedRow,
    FilterNotFound,
    StoreFailed,
)
from bloomstore.segment.blocks import damaged_blocks, touched_blocks
from bloomstore.segment.header import BLOCK_BYTES, HEADER_BYTES, segment_number
from bloomstore.segment.segment import Segment
from bloomstore.store.core import Core
from bloomstore.store.problem import Problem


def check_store(core: Core, only: str | None = None) -> abc.Iterator[Problem]:
    """Every problem of the store, or of one filter."""
    catalog = core.folder.catalog / "data.mdb"
    with core.catalog.read() as view:
        names = view.filter_names()
    if only is not None and only not in names:
        raise FilterNotFound(only)
    try:
        with core.catalog.read() as view:
            journal = list(view.journal())
            next_number = view.counters().next_number
            tombstones = view.tombstones()
    except DamagedRow as error:
        yield Problem(catalog, 0, str(error))
        return
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
            yield from _check_filter(core, row, stages, journal)
    if only is None and "*" not in known:
        yield from _check_folder(core, known, next_number)


def _check_filter(
    core: Core, row: FilterRow, stages: list[StageRow], journal: list[JournalRow]
) -> abc.Iterator[Problem]:
    live = [stage.stage for stage in stages if stage.chain == row.live_chain]
    if live != list(range(len(live))) or not live:
        what = f"stages of chain {row.live_chain} are {live}, expected 0, 1, 2, ..."
        yield Problem(core.folder.catalog / "data.mdb", 0, what, row.name)
    if row.dirty_boot not in (None, core.boot):
        what = "keys of durability 'process' went with the machine"
        yield Problem(core.folder.catalog / "data.mdb", 0, what, row.name)
    for stage in stages:
        entries = [entry for entry in journal if entry.number == stage.number]
        yield from _check_stage(core, row, stage, entries)


def _check_stage(
    core: Core, row: FilterRow, stage: StageRow, entries: list[JournalRow]
) -> abc.Iterator[Problem]:
    path = core.folder.segments / stage.header(core.store_id).file_name
    if stage.poisoned is not None:
        yield Problem(path, 0, stage.poisoned, row.name)
    try:
        segment = core.segment(stage, writable=False)
    except DamagedFile as error:
        yield Problem(path, error.offset, error.what, row.name)
        return
    except OSError as error:
        yield Problem(path, 0, str(error.strerror), row.name)
        return
    except BloomStoreError as error:
        yield Problem(path, 0, str(error), row.name)
        return
    for entry in entries:
        if not kernels.find([segment.vector], [stage.spec.geometry], entry.prints).all():
            what = f"journal row {entry.sequence} is not applied"
            yield Problem(path, HEADER_BYTES, what, row.name)
    if row.dirty_boot is None:
        yield from _check_blocks(core, row, stage, segment, entries)
    counts = entries[-1] if entries else stage
    set_bits = kernels.count_bits(segment.vector)
    if row.dirty_boot is None and set_bits != counts.set_bits:
        what = f"{set_bits} bits are set, expected {counts.set_bits}"
        yield Problem(path, HEADER_BYTES, what, row.name)


def _check_blocks(
    core: Core, row: FilterRow, stage: StageRow, segment: Segment, entries: list[JournalRow]
) -> abc.Iterator[Problem]:
    catalog: Path = core.folder.catalog / "data.mdb"
    try:
        with core.catalog.read() as view:
            checksums = view.checksums(stage.number, segment.header.blocks)
    except DamagedRow as error:
        yield Problem(catalog, 0, str(error), row.name)
        return
    if checksums is None:
        what = f"block checksums of segment {stage.number} are missing"
        yield Problem(catalog, 0, what, row.name)
        return
    touched = touched_blocks(stage.spec.geometry, [entry.prints for entry in entries])
    asked = [block for block in range(segment.header.blocks) if block not in touched]
    for block in damaged_blocks(segment.header, segment.vector, checksums, asked):
        offset = HEADER_BYTES + block * BLOCK_BYTES
        what = f"block {block} fails its checksum"
        yield Problem(segment.path, offset, what, row.name)


def _check_folder(core: Core, known: set[str], next_number: int) -> abc.Iterator[Problem]:
    for path in sorted(core.folder.segments.iterdir()):
        if path.name in known:
            continue
        if segment_number(path.name) >= next_number:
            what = "is newer than the catalog: the catalog was rolled back"
        else:
            what = "no catalog row knows this file"
        yield Problem(path, 0, what)
