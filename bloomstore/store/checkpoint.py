"""Checkpoint and seal: bits to the device, checksums and counts to the catalog, journal rows out.

Order (each step durable before the next):
  1. store all journalled bits again, unconditionally: a failed writeback may have marked their
     pages clean;
  2. msync, then fsync through a descriptor that was open before the stores;
  3. one commit: block checksums, counts, delete the rows, clear `dirty`.
A crash in between repeats the work. An error of a sync poisons the stage for every process: it is
never tried again (the kernel may have dropped the pages), and its journal rows stay.

Everything here runs under the writer lock.
"""

from __future__ import annotations

import collections.abc as abc

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, JournalRow, StageRow
from bloomstore.crash import crash_point
from bloomstore.errors import StoreFailed
from bloomstore.segment.blocks import block_checksums, touched_blocks
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS, Segment
from bloomstore.store.core import SYNC_FAILED, Core

# A journal this long is replayed in well under a second at the next open.
JOURNAL_BYTES = 8 << 20


def if_due(core: Core, stage: StageRow, journal_bytes: int) -> None:
    """Checkpoints a store whose journal has grown long; the keys that came last are durable."""
    if journal_bytes > max(JOURNAL_BYTES, stage.spec.geometry.vector_bytes // 4):
        every_filter(core)


def every_filter(core: Core) -> None:
    """Checkpoints every stage that changed since its last checkpoint."""
    core.catalog.forget_dead_readers()
    with core.catalog.read() as view:
        filters = [(row, view.stage_rows(row.number)) for row in view.sound_filter_rows()]
        journal = _by_segment(view.journal())
    for row, stages in filters:
        is_dirty = row.dirty_boot is not None
        newest = {stage.chain: stage.stage for stage in stages}
        written = []
        for stage in stages:
            is_left = stage.stage != newest[stage.chain]  # a crash came before its seal
            if not stage.sealed and (is_dirty or is_left or stage.number in journal):
                entries = journal.get(stage.number, [])
                done = _one_stage(core, stage, entries, is_dirty=is_dirty, sealed=is_left)
                written.append(done)
        if is_dirty and all(written):
            with core.catalog.write() as change:
                change.update_filter(row.name, dirty_boot=None)
            core.lock.begin_tenure()


def seal(core: Core, row: FilterRow, stage: StageRow) -> None:
    """Makes a full stage immutable; its successor was published before."""
    with core.catalog.read() as view:
        entries = _by_segment(view.journal()).get(stage.number, [])
        current = view.stage_row(stage.filter_number, stage.chain, stage.stage)
    if current is not None:
        is_dirty = row.durability == "process"
        _one_stage(core, current, entries, is_dirty=is_dirty, sealed=True)


def _by_segment(entries: abc.Iterable[JournalRow]) -> dict[int, list[JournalRow]]:
    found: dict[int, list[JournalRow]] = {}
    for entry in entries:
        found.setdefault(entry.number, []).append(entry)
    return found


def _one_stage(
    core: Core,
    stage: StageRow,
    entries: list[JournalRow],
    *,
    is_dirty: bool,
    sealed: bool = False,
) -> bool:
    """Checkpoints one stage; False if it cannot be trusted with it.

    Raises StoreFailed and poisons the stage when a sync fails.
    """
    segment = core.stage(stage).segment
    if segment is None or stage.poisoned is not None:
        return False  # its rows stay in the journal until it is recovered or rebuilt
    for entry in entries:
        kernels.apply(segment.vector, stage.spec.geometry, entry.prints)
    crash_point("checkpoint: rows applied again")
    try:
        segment.sync()
    except OSError as error:
        core.poison(stage, f"{SYNC_FAILED}: {error.strerror}")
        raise StoreFailed(f"{segment.path}: sync failed: {error.strerror}") from error
    if is_dirty:
        counts = segment.words[WORD_SET_BITS], segment.words[WORD_KEYS]
    else:
        last = entries[-1] if entries else stage
        counts = last.set_bits, last.keys
    with core.catalog.write() as change:
        checksums = change.checksums(stage.number, segment.header.blocks)
        blocks = (
            None
            if is_dirty
            else touched_blocks(stage.spec.geometry, [entry.prints for entry in entries])
        )
        change.put_checksums(stage.number, _renewed(segment, checksums, blocks))
        change.update_stage(stage, set_bits=counts[0], keys=counts[1], sealed=sealed)
        change.delete_journal(entry.sequence for entry in entries)
    crash_point("seal: marked" if sealed else "checkpoint: catalog committed")
    if sealed:
        segment.end_writing()
    return True


def _renewed(
    segment: Segment, checksums: NDArray[np.uint32] | None, blocks: set[int] | None
) -> NDArray[np.uint32]:
    """Checksums of the whole vector, computed again for these blocks, or for all."""
    if checksums is None or blocks is None:
        return block_checksums(segment.header, segment.vector, range(segment.header.blocks))
    renewed = checksums.copy()
    changed = sorted(blocks)
    renewed[changed] = block_checksums(segment.header, segment.vector, changed)
    return renewed
