"""Mending what can be mended without the source, and naming what needs a rebuild.

    damage                              repair
    blocks that fail their checksum     set to ones in the file: they answer "maybe" for ever
    a stage whose sync failed           written again into a new file, from memory and journal
    block checksums missing             made again, if the number of set bits is still right
    journal rows that cannot be read    deleted; the filters that may have lost keys are marked
    a catalog older than its files      numbers go on above theirs; all filters are marked
    files missing, short, swapped;      nothing: such a filter answers "maybe" until it is rebuilt
    keys lost with the machine

Setting bits is always safe, at any moment and however often: a crash in the middle leaves a block
that still fails its checksum. Nothing is ever made certain again that was in doubt for lost keys.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.errors import BloomStoreError, DamagedRow
from bloomstore.segment.blocks import block_checksums, damaged_blocks, touched_blocks
from bloomstore.segment.header import BLOCK_BYTES, segment_number
from bloomstore.segment.segment import Segment, open_segment
from bloomstore.store import growth, recovery
from bloomstore.store.core import SYNC_FAILED, Core

# How the reason of a stage begins that was poisoned for damaged blocks.
_BLOCKS = "damaged blocks"
_ROLLED_BACK = "the catalog was rolled back and may miss keys"
_JOURNAL_LOST = "a journal row was damaged and may have held keys"


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was looked at: what was done, and whether only a rebuild can do the rest."""

    what: str
    needs_rebuild: bool = False

    def __str__(self) -> str:
        return f"{self.what}; rebuild the filter" if self.needs_rebuild else self.what


def repair_store(core: Core) -> abc.Iterator[Repair]:
    """Mends one thing after the other, yielding what was done."""
    with core.lock.hold():
        yield from _mend_catalog(core)
        core.doubt = None
        recovery.recover(core)
        with core.catalog.read() as view:
            names = view.filter_names()
        for name in names:
            try:
                with core.catalog.read() as view:
                    row = view.filter_row(name)
                    stages = [] if row is None else view.stage_rows(row.number)
            except DamagedRow as error:
                yield Repair(f"filter {name!r}: {error}", needs_rebuild=True)
                continue
            assert row is not None
            for stage in stages:
                yield from _mend_stage(core, row, stage)
        growth.bury(core)


def _mend_catalog(core: Core) -> abc.Iterator[Repair]:
    highest = max((segment_number(path.name) for path in core.folder.segments.iterdir()), default=0)
    with core.catalog.read() as view:
        is_behind = highest >= view.counters().next_number
    if is_behind:
        with core.change() as change:
            change.raise_next_number(highest + 1)
        _mark_all(core, _ROLLED_BACK)
        yield Repair(f"catalog: numbers go on from {highest + 1}, every filter is in doubt")
    with core.change() as change:
        gone = change.delete_damaged_journal()
    if gone:
        _mark_all(core, _JOURNAL_LOST)
        yield Repair(f"journal: damaged rows {gone} deleted, filters with a journal are in doubt")


def _mark_all(core: Core, reason: str) -> None:
    with core.change() as change:
        for name in change.filter_names():
            try:
                row = change.filter_row(name)
                if row is not None and (reason == _ROLLED_BACK or row.durability == "commit"):
                    for chain in (row.live_chain, row.coming_chain):
                        stages = [] if chain is None else change.stage_rows(row.number, chain)
                        for stage in stages[-1:]:
                            change.update_stage(stage, poisoned=reason)
            except DamagedRow:
                continue  # it is in doubt already
        change.raise_generation()


def _mend_stage(core: Core, row: FilterRow, stage: StageRow) -> abc.Iterator[Repair]:
    header = stage.header(core.store_id)
    path = core.folder.segments / header.file_name
    where = f"filter {row.name!r}, stage {stage.stage}"
    try:
        segment = open_segment(path, header, writable=True)
    except (BloomStoreError, OSError) as error:
        yield Repair(f"{where}: {error}", needs_rebuild=True)
        return
    if stage.poisoned is not None and stage.poisoned.startswith(SYNC_FAILED):
        fresh = _write_again(core, stage, segment)
        yield Repair(f"{where}: written again as {fresh.header(core.store_id).file_name}")
        return
    if row.dirty_boot is not None:
        yield Repair(f"{where}: changing just now, not looked at")
        return
    with core.catalog.read() as view:
        entries = [entry.prints for entry in view.journal() if entry.number == stage.number]
        try:
            checksums = view.checksums(stage.number, header.blocks)
        except DamagedRow:
            checksums = None
    if checksums is None:
        if kernels.count_bits(segment.vector) != stage.set_bits or entries:
            yield Repair(f"{where}: its block checksums are lost", needs_rebuild=True)
            return
        bad: list[int] = []
        yield Repair(f"{where}: block checksums made again")
    else:
        touched = touched_blocks(stage.spec.geometry, entries)
        asked = [block for block in range(header.blocks) if block not in touched]
        bad = damaged_blocks(header, segment.vector, checksums, asked)
        if not bad and (stage.poisoned or "").startswith(_BLOCKS):
            bad = sorted(touched) or asked
    if bad or checksums is None:
        _saturate(core, stage, segment, bad)
    if bad:
        yield Repair(f"{where}: blocks {bad} set to ones, they answer maybe")
    if stage.poisoned is not None and not stage.poisoned.startswith(_BLOCKS):
        yield Repair(f"{where}: {stage.poisoned}", needs_rebuild=True)


def _saturate(core: Core, stage: StageRow, segment: Segment, blocks: list[int]) -> None:
    """Sets blocks to ones, durably, with their checksums and counts."""
    for block in blocks:
        segment.vector[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = 0xFF
    segment.sync()
    checksums = block_checksums(segment.header, segment.vector, range(segment.header.blocks))
    is_about_blocks = (stage.poisoned or "").startswith(_BLOCKS)
    with core.change() as change:
        change.put_checksums(stage.number, checksums)
        change.update_stage(
            stage,
            set_bits=kernels.count_bits(segment.vector),
            poisoned=None if is_about_blocks else stage.poisoned,
        )
        change.delete_journal(
            [entry.sequence for entry in change.journal() if entry.number == stage.number]
        )
        change.raise_generation()
    core.forget(stage.number)


def _write_again(core: Core, stage: StageRow, segment: Segment) -> StageRow:
    """A stage whose sync failed, in a new file: its bits in memory and those of the journal."""
    with core.catalog.read() as view:
        entries = [entry for entry in view.journal() if entry.number == stage.number]
    vector = np.array(segment.vector)
    for entry in entries:
        kernels.apply(vector, stage.spec.geometry, entry.prints)
    last = entries[-1] if entries else stage
    known = stage.with_counts(last.set_bits, last.keys)
    return growth.replace_segment(core, known, vector, entries)
