"""Trust in a stage: a block that fails its checksum becomes ones before a "no" is believed.

A block is verified before the first "no" that is taken from it, and before a key is added to it: so
a checkpoint never gives rotten bits a new checksum. Small active stages are examined as a whole at
their first use, which also counts their bits; the others block by block, when a lookup or an add
needs them (Segment.verify). Of every stage, large or small, the bits of its journal rows are tested
at its first use: an older file may have been put back since the store was opened.

A block that fails is looked at again, because a writer may have changed it meanwhile, and is hidden
from this process at once. A process that may write then records the damage for all processes, now
if the writer lock is free, else before its next change:

  1. one commit, with a new generation: the stage's row names the blocks, they have the checksums of
     ones, and the counts count them;
  2. the blocks are set to ones in the file.

A crash in between leaves blocks that fail their new checksums and are found again. The commit comes
first: a key that is taken for known because of ones must find them again after a power cut.

Not here: finding the damage of a stage (process/damage.py), other repairs (care/repair.py).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import logging
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.reasons import ReasonCode
from bloomstore.catalog.rows import StageRow
from bloomstore.errors import BloomStoreError, DamagedRow, StoreLocked
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.blocks import (
    block_checksums,
    blocks_in,
    joined_ranges,
    ones_checksums,
)
from bloomstore.segment.mapping import passes
from bloomstore.segment.segment import READ_WHOLE_BYTES, WORD_SET_BITS, Segment, open_segment
from bloomstore.store.durable import reasons, recovery
from bloomstore.store.process.damage import (
    Damage,
    Known,
    examine,
    read_known,
    still_damaged,
)
from bloomstore.store.process.open_files import Core, missing_stages
from bloomstore.store.process.words import APPLYING

log = logging.getLogger("bloomstore")

# How often a stage that writers keep changing is examined before giving up.
LOOKS = 5


def stage_of(core: Core, row: StageRow) -> Stage:
    """A living stage; one that cannot be mapped or was poisoned carries its doubt."""
    writable = not (core.options.read_only or row.sealed)
    try:
        segment = core.segment(row, writable=writable)
    except OSError as error:
        doubt = f"stage {row.stage}: {error.strerror}: {error.filename}"
        return Stage(row, None, doubt, is_transient=passes(error))
    except BloomStoreError as error:
        return Stage(row, None, f"stage {row.stage}: {error}")
    return trusted(core, row, segment)


def chain_of(core: Core, rows: list[StageRow], count: int) -> Chain:
    """The chain of these stages; it is in doubt if some of its `count` stages are missing."""
    stages = [stage_of(core, row) for row in rows]
    return Chain(stages, missing_stages(rows, count))


def trusted(core: Core, row: StageRow, segment: Segment) -> Stage:
    """The stage of a mapped segment, with a doubt if nothing says which of its bits are right."""
    if row.poisoned is not None:
        return Stage(row, segment, f"stage {row.stage}: {row.poisoned}")
    if row.number in core.believed or segment.is_expected:
        return Stage(row, segment)
    try:
        damage = examine(core, row, segment) if _is_small(row) and not row.sealed else None
        if damage is None:  # too large to read all of it, or changing just now
            return _expected(core, row, segment)
    except DamagedRow as error:
        return Stage(row, segment, f"stage {row.stage}: {error}")
    if not (damage.blocks or damage.unapplied):
        core.believed.add(row.number)
        return Stage(row, segment)
    return _mended(core, row, segment, damage)


def _is_small(row: StageRow) -> bool:
    return row.spec.geometry.vector_bytes <= READ_WHOLE_BYTES


def _expected(core: Core, row: StageRow, segment: Segment) -> Stage:
    """The stage; every block is verified before it is believed, unless it has changed since."""
    known = read_known(core, row, segment)
    if _lacks_rows(core, known):
        with contextlib.suppress(StoreLocked), core.hold():
            recovery.finish(core)
            recovery.finish_missing(core)
            known = read_known(core, row, segment)
        if _lacks_rows(core, known):
            doubt = f"stage {row.stage}: journal rows are not applied"
            return Stage(row, segment, doubt, is_transient=True)
    if known is None or known.checksums is None:
        doubt = f"stage {row.stage}: block checksums of segment {row.number} are missing"
        return Stage(row, segment, doubt)
    segment.expect(known.checksums, known.changed, partial(_judge, core, row))
    return Stage(row, segment)


def _lacks_rows(core: Core, known: Known | None) -> bool:
    """Whether a bit of its journal rows is missing. Read-only processes look in view.py instead."""
    entries = known.entries if known is not None and _may_write(core) else []
    return bool(entries) and recovery.is_missing(core, entries)


def _may_write(core: Core) -> bool:
    return not core.options.read_only and core.doubt is None


def _mended(core: Core, row: StageRow, segment: Segment, damage: Damage) -> Stage:
    """A stage that looked wrong as a whole: finished, mended, or in doubt."""
    if _may_write(core):
        with contextlib.suppress(StoreLocked), core.hold():
            recovery.finish(core)
            if damage.unapplied:
                recovery.finish_missing(core)
            again = examine(core, row, segment)
            damage = Damage() if again is None else again
            if damage.is_whole:
                core.poison(row, reasons.damaged_blocks(damage.blocks))
            elif damage.blocks:
                row, damage = record(core, row, segment, damage.blocks), Damage()
    if damage.is_whole:
        return Stage(row, segment, f"stage {row.stage}: {reasons.damaged_blocks(damage.blocks)}")
    if damage.unapplied and _may_write(core):  # a read-only process looks for itself, see view.py
        doubt = f"stage {row.stage}: journal row {damage.unapplied[0]} is not applied"
        return Stage(row, segment, doubt, is_transient=True)
    if damage.blocks:
        segment.hide(damage.blocks, is_sealed=row.sealed)
        core.unrecorded[row.number] = row
        core.believed.add(row.number)
    return Stage(row, segment)


def _judge(core: Core, row: StageRow, segment: Segment, blocks: list[int]) -> None:
    """Decides whether blocks that fail their checksums are damaged or were changed since."""
    failing: list[int] | None = None
    with contextlib.suppress(BloomStoreError):  # an error leaves them damaged
        for _ in range(LOOKS):
            failing = still_damaged(core, row, segment, blocks)
            if failing is not None:
                break
    if failing == []:
        return
    segment.hide(blocks if failing is None else failing, is_sealed=row.sealed)
    if not _may_write(core):
        return
    core.unrecorded[row.number] = row
    # Never waits: the holder of the lock may wait for the blocks that are being verified here.
    hold = core.lock.at_once()
    if hold is not None:
        try:
            with contextlib.suppress(BloomStoreError):
                recovery.finish(core)
                record_all(core)
        finally:
            hold.end()


def prepare(core: Core, chain: Chain, prints: NDArray[np.uint64] | None = None) -> None:
    """Verifies the blocks that keys will change, or all of the newest stage; under the lock."""
    if not chain.is_verified:
        if prints is not None:
            chain.verify(prints)
        elif chain.newest.segment is not None:
            chain.newest.segment.verify_all()
    if core.unrecorded:
        record_all(core)


def record_all(core: Core) -> None:
    """Tells every process of the damage that this one has found. Under the writer lock."""
    for number, known in list(core.unrecorded.items()):
        with core.catalog.read() as view:
            row = view.stage_row(known.filter_number, known.chain, known.stage)
        segment = core.mapped(known)
        if row is not None and row.number == number and segment is not None and segment.damaged:
            failing = still_damaged(core, row, segment, segment.damaged)
            if _is_small(row):  # its other blocks, or its number of set bits, may be wrong as well
                whole = examine(core, row, segment)
                failing = failing if whole is None or whole.is_whole else list(whole.blocks)
            if failing:
                record(core, row, segment, failing)
            if failing is not None:
                segment.show()
        core.unrecorded.pop(number, None)


def record(core: Core, row: StageRow, segment: Segment, blocks: abc.Collection[int]) -> StageRow:
    """Makes damaged blocks ones for every process; returns the row. Under the writer lock."""
    log.warning(
        "%s: blocks %s are damaged and answer maybe; rebuild the filter",
        segment.path,
        sorted(blocks),
    )
    header = segment.header
    mine = sorted(blocks)
    with core.catalog.read() as view:
        entries = view.journal_of(row.number)
        checksums = view.checksums(row.number, header.blocks)
    if checksums is None:
        checksums = block_checksums(header, segment.shared, range(header.blocks))
    checksums = checksums.copy()
    checksums[mine] = ones_checksums(header, mine)
    ones = sum(8 * len(segment.block(b)) - kernels.count_bits(segment.block(b)) for b in mine)
    set_bits = kernels.count_bits(segment.shared) + ones
    core.words[APPLYING] = row.number  # after a crash the next holder counts the bits again
    with core.change() as change:
        now = change.update_stage(row)
        is_about_blocks = reasons.is_poisoned_by(now, ReasonCode.DAMAGED_BLOCKS)
        now = change.update_stage(
            row,
            set_bits=set_bits,
            damaged=joined_ranges(blocks_in(now.damaged).union(mine)),
            poisoned=None if is_about_blocks else now.poisoned,
        )
        change.put_checksums(row.number, checksums)
        if entries:
            change.append_journal(entries[-1]._replace(set_bits=set_bits))
        change.raise_generation()
    if segment.is_writable:
        segment.set_ones(mine)
        segment.words[WORD_SET_BITS] = set_bits
    else:
        with contextlib.suppress(OSError, BloomStoreError):  # else each process hides them
            open_segment(segment.path, header, writable=True).set_ones(mine)
    core.words[APPLYING] = 0
    core.counts.pop(row.number, None)
    return now
