"""Checkpoint and seal: bits to the device, checksums and counts to the catalog, journal rows out.

Order (each step durable before the next):
  1. store all journalled bits again, unconditionally: a failed writeback may have marked their
     pages clean;
  2. msync, through the open file of the mapping, which was there before the stores, then fsync;
  3. one commit: checksums of the blocks that have changed, counts, delete the rows;
  4. for durability `process`: clear the flags of the blocks, then `dirty`.
A crash in between repeats the work. Flags that stay set although their blocks have new checksums
keep these from being verified until the next checkpoint; cleared before the commit they would make
sound blocks look damaged. An error of a sync poisons the stage for every process: it is never tried
again (the kernel may have dropped the pages), and its journal rows stay.

Everything here runs under the writer lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.crash import crash_point
from bloomstore.errors import DamagedFile, StoreFailed
from bloomstore.segment.blocks import block_checksums
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS, Segment
from bloomstore.store.durable import reasons
from bloomstore.store.durable.trust import stage_of
from bloomstore.store.process.damage import changed_blocks
from bloomstore.store.process.open_files import Core

# A journal this long is replayed in well under a second at the next open.
JOURNAL_BYTES = 8 << 20


def if_due(core: Core, stage: StageRow, journal_bytes: int) -> None:
    """Checkpoints a store whose journal has grown long; the keys that came last are durable."""
    most = max(JOURNAL_BYTES, stage.spec.geometry.vector_bytes // 4)
    if journal_bytes > min(most, core.options.map_size // 4):
        every_filter(core)


def every_filter(core: Core) -> None:
    """Checkpoints every stage that changed since its last checkpoint.

    The others cost a look at the row of their filter: a stage that a crash has left before its seal
    has rows in the journal, or its filter is dirty.
    """
    core.catalog.forget_dead_readers()
    with core.catalog.read() as view:
        journal: dict[int, list[JournalRow]] = {}
        changed: dict[int, FilterRow | None] = {}  # by number, with the row if it is dirty
        for entry in view.journal():
            journal.setdefault(entry.number, []).append(entry)
            changed[entry.filter_number] = None
        changed.update((row.number, row) for row in view.dirty_filter_rows())
        filters = [(row, view.stage_rows(number)) for number, row in changed.items()]
    for row, stages in filters:
        is_dirty = row is not None
        newest = {stage.chain: stage.stage for stage in stages}
        written = []
        for stage in stages:
            is_left = stage.stage != newest[stage.chain]  # a crash came before its seal
            if not stage.sealed and (is_dirty or is_left or stage.number in journal):
                entries = journal.get(stage.number, [])
                done = _one_stage(core, stage, entries, is_dirty=is_dirty, sealed=is_left)
                written.append(done)
        if row is not None and all(written):
            with core.catalog.write() as change:
                change.update_filter(row.name, dirty_boot=None)
            core.lock.begin_tenure()


def seal(core: Core, row: FilterRow, stage: StageRow) -> None:
    """Makes a full stage immutable; its successor was published before."""
    with core.catalog.read() as view:
        entries = view.journal_of(stage.number)
        current = view.stage_row(stage.filter_number, stage.chain, stage.stage)
    if current is not None:
        is_dirty = row.durability == "process"
        _one_stage(core, current, entries, is_dirty=is_dirty, sealed=True)


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
    segment = stage_of(core, stage).segment
    if segment is None or stage.poisoned is not None:
        return False  # its rows stay in the journal until it is recovered or rebuilt
    for entry in entries:
        kernels.apply(segment.shared, stage.spec.geometry, entry.prints)
    crash_point("checkpoint: rows applied again")
    try:
        segment.sync()
    except DamagedFile:
        return False
    except OSError as error:
        core.poison(stage, reasons.sync_failed(error))
        raise StoreFailed(f"{segment.path}: sync failed: {error.strerror}") from error
    if is_dirty:
        counts = segment.words[WORD_SET_BITS], segment.words[WORD_KEYS]
    else:
        last = entries[-1] if entries else stage
        counts = last.set_bits, last.keys
    with core.catalog.write() as change:
        checksums = change.checksums(stage.number, segment.header.blocks)
        blocks = changed_blocks(stage, entries, segment if is_dirty else None)
        change.put_checksums(stage.number, _renewed(segment, checksums, blocks))
        change.update_stage(stage, set_bits=counts[0], keys=counts[1], sealed=sealed)
        change.delete_journal(entry.sequence for entry in entries)
    crash_point("seal: marked" if sealed else "checkpoint: catalog committed")
    if is_dirty:
        core.lock.begin_tenure()  # no add takes them for set any more
        segment.clear_flags()
    return True


def _renewed(
    segment: Segment, checksums: NDArray[np.uint32] | None, blocks: set[int]
) -> NDArray[np.uint32]:
    """Checksums of the whole vector, computed again for these blocks, or for all."""
    if checksums is None:
        return block_checksums(segment.header, segment.shared, range(segment.header.blocks))
    renewed = checksums.copy()
    changed = sorted(blocks)
    renewed[changed] = block_checksums(segment.header, segment.shared, changed)
    return renewed
