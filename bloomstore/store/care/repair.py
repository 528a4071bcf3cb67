"""Repair: mends all damage that needs no source, and names the filters that need a rebuild.

    damage                              repair
    blocks that fail their checksum     set to ones in the file: they answer "maybe" until a rebuild
    a stage whose sync failed           written again into a new file, from memory and journal;
                                        blocks that fail their checksum are ones there
    block checksums missing             made again, if the number of set bits is still right
    journal rows that cannot be read    deleted; the filters that may have lost keys are marked
    a catalog older than its files      numbers continue above theirs; all filters are marked, and
                                        so are new ones while files remain of filters that it has
                                        forgotten; files that it calls dead may live, and stay
    files missing, short, swapped;      nothing: such a filter answers "maybe" until it is rebuilt
    keys lost with the machine

Setting bits is always safe, at any moment and however often: a crash in the middle leaves a block
that still fails its checksum. Nothing is ever made certain again that was in doubt for lost keys.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass, replace

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.errors import BloomStoreError, DamagedRow, StoreFailed
from bloomstore.segment.blocks import block_checksums, blocks_in, fill_blocks, joined_ranges
from bloomstore.segment.header import segment_number
from bloomstore.segment.segment import Segment, open_segment
from bloomstore.store.durable import reasons, recovery, stage_files, trust
from bloomstore.store.process.damage import examine
from bloomstore.store.process.open_files import Core, missing_of


@dataclass(frozen=True, slots=True)
class Repair:
    """One line of a repair: the damage, what was done, and whether a rebuild must do the rest."""

    what: str
    needs_rebuild: bool = False

    def __str__(self) -> str:
        return f"{self.what}; rebuild the filter" if self.needs_rebuild else self.what


def repair_store(core: Core) -> abc.Iterator[Repair]:
    """Mends catalog, then filters, yielding a line for each thing done."""
    with core.hold():
        core.require_place()
        yield from _mend_catalog(core)
        recovery.recover(core)
        core.doubt = None
        with core.catalog.read() as view:
            names = view.filter_names()
        for name in names:
            try:
                with core.catalog.read() as view:
                    row = view.filter_row(name)
                    stages = [] if row is None else view.stage_rows(row.number)
                if row is None:
                    continue
                for missing in missing_of(row, stages):
                    yield Repair(f"filter {name!r}: {missing}", needs_rebuild=True)
                for stage in stages:
                    yield from _mend_stage(core, row, stage)
            except DamagedRow as error:
                yield Repair(f"filter {name!r}: {error}", needs_rebuild=True)
        stage_files.bury(core)


def _mend_catalog(core: Core) -> abc.Iterator[Repair]:
    """Mends numbers and journal; the mark that keys may be missing is in the same commit."""
    highest = max((segment_number(path.name) for path in core.folder.segment_files()), default=0)
    with core.change() as change:
        is_behind = (
            highest >= change.counters().next_number or change.number <= core.catalog.witness.number
        )
        if is_behind:
            change.raise_next_number(highest + 1)
            change.set_forgotten_below(change.counters().next_number)
            for number in change.tombstones():
                change.delete_tombstone(number)
            _mark_all(change, reasons.ROLLED_BACK)
    core.catalog.witness.set(core.catalog.last_commit)
    if is_behind:
        yield Repair(f"catalog: numbers continue from {highest + 1}, every filter is in doubt")
    with core.catalog.read() as view:
        forgotten = recovery.forgotten_files(core, view)
    if forgotten:
        what = (
            "belong to filters that the catalog has forgotten; new filters beside them are in doubt"
        )
        yield Repair(f"{core.folder.segments}: {', '.join(forgotten)} {what}")
    with core.change() as change:
        gone = change.delete_damaged_journal()
        if gone:
            _mark_all(change, reasons.JOURNAL_LOST)
    if gone:
        yield Repair(f"journal: damaged rows {gone} deleted, filters with a journal are in doubt")


def doubt_of_new(core: Core, change: CatalogChange) -> Reason | None:
    """Why a new filter must not count as empty; None if it may. Called by `Store.create`."""
    forgotten = recovery.forgotten_files(core, change)
    if forgotten:
        what = f"{reasons.ROLLED_BACK}: {forgotten[0]} may hold those of this filter"
        text = f"{what}; rebuild it, or remove such files before you create it"
        return Reason(ReasonCode.ROLLED_BACK, text)
    if change.identity().forgotten_below:
        change.set_forgotten_below(0)
    return None


def _mark_all(change: CatalogChange, reason: Reason) -> None:
    for row in list(change.sound_filter_rows()):
        if reason.code != ReasonCode.ROLLED_BACK and row.durability != "commit":
            continue
        for chain in (row.live_chain, row.coming_chain):
            try:
                stages = [] if chain is None else change.stage_rows(row.number, chain)
            except DamagedRow:
                continue  # it is in doubt already
            for stage in stages[-1:]:
                change.update_stage(stage, poisoned=reason)
    change.raise_generation()


def _mend_stage(core: Core, row: FilterRow, stage: StageRow) -> abc.Iterator[Repair]:
    header = stage.header(core.store_id)
    where = f"filter {row.name!r}, stage {stage.stage}"
    try:
        path = core.folder.segments / header.file_name
        segment = open_segment(path, header, writable=True)
    except OSError as error:
        yield Repair(f"{where}: {error.strerror}: {error.filename}", needs_rebuild=True)
        return
    except BloomStoreError as error:
        yield Repair(f"{where}: {error}", needs_rebuild=True)
        return
    is_unwritten = reasons.is_poisoned_by(stage, ReasonCode.SYNC_FAILED, ReasonCode.UNAPPLIED)
    is_about_blocks = reasons.is_poisoned_by(stage, ReasonCode.DAMAGED_BLOCKS)
    damage = examine(core, stage, segment)
    lacks_only_checksums = damage is not None and damage.lacks_checksums and damage.set_bits is None
    if is_unwritten and row.durability == "commit" and damage is not None:
        # What the device lost with the sync shows in checksums, or in the number of set bits.
        damaged = () if lacks_only_checksums else damage.blocks
        fresh = _write_again(core, stage, segment, damaged)
        what = f"{where}: written again as {fresh.header(core.store_id).file_name}"
        if damaged:
            what = f"{what}, with ones for blocks {list(damaged)}, which answer maybe"
        yield Repair(what, needs_rebuild=bool(damaged))
        return
    if lacks_only_checksums:
        _renew(core, stage, segment)
        yield Repair(f"{where}: block checksums made again")
    elif damage is not None and damage.blocks:
        stage = trust.record(core, stage, segment, damage.blocks)
        core.forget(stage.number)
        what = f"blocks {list(damage.blocks)} set to ones, they answer maybe and raise the error"
        yield Repair(f"{where}: {what}", needs_rebuild=True)
    elif is_about_blocks:
        _renew(core, stage, segment)
        yield Repair(f"{where}: its blocks are sound again")
    elif stage.damaged:
        what = f"blocks {sorted(blocks_in(stage.damaged))} are ones, they answer maybe"
        yield Repair(f"{where}: {what}", needs_rebuild=True)
    if stage.poisoned is not None and not is_about_blocks:
        yield Repair(f"{where}: {stage.poisoned}", needs_rebuild=True)


def _renew(core: Core, stage: StageRow, segment: Segment) -> None:
    """Makes the bits of a stage durable, with new checksums and counts; its rows are in them."""
    with core.catalog.read() as view:
        entries = view.journal_of(stage.number)
    for entry in entries:
        kernels.apply(segment.shared, stage.spec.geometry, entry.prints)
    is_about_blocks = reasons.is_poisoned_by(stage, ReasonCode.DAMAGED_BLOCKS)
    try:
        segment.sync()
    except OSError as error:
        if stage.poisoned is None or is_about_blocks:  # a doubt for lost keys stays what it is
            core.poison(stage, reasons.sync_failed(error))
        raise StoreFailed(f"{segment.path}: sync failed: {error.strerror}") from error
    checksums = block_checksums(segment.header, segment.shared, range(segment.header.blocks))
    last = entries[-1] if entries else stage
    with core.change() as change:
        change.put_checksums(stage.number, checksums)
        change.update_stage(
            stage,
            set_bits=kernels.count_bits(segment.shared),
            keys=last.keys,
            poisoned=None if is_about_blocks else stage.poisoned,
        )
        change.delete_journal([entry.sequence for entry in entries])
        change.raise_generation()
    core.forget(stage.number)


def _write_again(
    core: Core, stage: StageRow, segment: Segment, damaged: abc.Collection[int]
) -> StageRow:
    """A stage whose sync failed, in a new file: its bits in memory and those of the journal.

    The damaged blocks become ones there.
    """
    with core.catalog.read() as view:
        entries = view.journal_of(stage.number)
    vector = np.array(segment.shared)
    for entry in entries:
        kernels.apply(vector, stage.spec.geometry, entry.prints)
    fill_blocks(vector, damaged)
    last = entries[-1] if entries else stage
    counted = stage.with_counts(kernels.count_bits(vector), last.keys)
    counted = replace(counted, damaged=joined_ranges(blocks_in(stage.damaged).union(damaged)))
    return stage_files.replace_segment(core, counted, vector, entries)
