"""Finds damage: compares the bits of one stage with the catalog.

A block has a checksum if it has not changed since the last checkpoint, or if it was found damaged
and has been all ones since. For the other blocks only the number of set bits in the stage can be
compared; the journal knows it exactly, and for a dirty filter the words of its segment do. An odd
number of flips, or a zeroed run, changes it. Once a block fails its checksum, that number says
nothing any more, and the cause may have damaged neighbouring blocks: then no changed block is
trusted. A stage that is changing cannot be judged, nor one whose filter was dirty when the machine
went down.

This module only looks; it changes nothing. It is used before a "no" is believed (durable/trust.py),
by `check` and by `repair`.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import StageRow
from bloomstore.segment.blocks import blocks_in, damaged_blocks, touched_blocks
from bloomstore.segment.segment import WORD_SET_BITS, Segment
from bloomstore.store.process.words import APPLYING

if TYPE_CHECKING:
    from bloomstore.store.process.open_files import Core


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of one stage.

    blocks: cannot be trusted. unapplied: journal rows whose bits are missing. set_bits: how many
    are set and how many must be, when these differ. lacks_checksums: the catalog has lost them.
    is_whole: nothing says which blocks are right, so all of them are among `blocks`.
    """

    blocks: tuple[int, ...] = ()
    unapplied: tuple[int, ...] = ()
    set_bits: tuple[int, int] | None = None
    lacks_checksums: bool = False
    is_whole: bool = False


def examine(core: Core, row: StageRow, segment: Segment) -> Damage | None:
    """The damage of a stage, or None when it cannot be judged just now. Raises DamagedRow.

    Blocks without a checksum are damaged, too, if another one fails its checksum or the number of
    set bits is wrong. Not found: damage to them alone that leaves that number as it was.
    """
    before = _moment(core, row)
    known = read_known(core, row, segment)
    if known is None or known.is_lost:
        return None
    expected = _expected(core, known)
    every = range(segment.header.blocks)
    # Before bits are counted: a row that is applied meanwhile must not look like damage.
    unapplied = _unapplied(row, segment, known.entries)
    if known.checksums is None:
        failing, set_bits = list(every), kernels.count_bits(segment.shared)
    else:
        checksummed = [block for block in every if block not in known.changed]
        # The checksums count set bits on their way; those of the other blocks are added.
        failing, set_bits = damaged_blocks(
            segment.header, segment.shared, known.checksums, checksummed
        )
        set_bits += sum(kernels.count_bits(segment.block(block)) for block in known.changed)
    differs = set_bits != expected and not unapplied
    changed = known.changed
    if known.dirty is not None:  # keys may have been added meanwhile: a flag is set before a bit
        changed = changed | changed_blocks(known.stage, (), segment)
        failing = sorted(set(failing) - changed)
        differs = differs and expected == _expected(core, known) >= 0
    is_whole = known.checksums is None or (differs and not failing and not changed)
    if differs or failing:
        failing = sorted(changed.union(failing)) or list(every)
    if _has_moved(core, row, before):
        return None
    counts = (set_bits, expected) if differs else None
    return Damage(tuple(failing), unapplied, counts, known.checksums is None, is_whole)


def still_damaged(
    core: Core, row: StageRow, segment: Segment, blocks: abc.Iterable[int]
) -> list[int] | None:
    """Which of these blocks fail their checksums although no writer has changed them.

    None if that cannot be said: a checkpoint came in between, or the stage is gone. Certain beside
    writers, too: a writer makes a bit known by a journal row or a flag before it sets the bit, and
    a checkpoint notes another checksum before it takes that back. Raises DamagedRow.
    """
    before = read_known(core, row, segment)
    if before is None or before.checksums is None:
        return None
    checksummed = [block for block in blocks if block not in before.changed]
    failing, _ = damaged_blocks(segment.header, segment.shared, before.checksums, checksummed)
    after = read_known(core, row, segment)
    if after is None or after.checksums is None:
        return None
    failing = [block for block in failing if block not in after.changed]
    is_same = np.array_equal(before.checksums[failing], after.checksums[failing])
    return failing if is_same else None


@dataclass(frozen=True, slots=True)
class Known:
    """A stage at one moment, by the catalog and by the flags of a dirty filter's segment.

    changed: blocks without a checksum. dirty: the segment, if its words count instead of the row's.
    is_lost: it was dirty when the machine went down, and every block may have changed.
    """

    stage: StageRow
    entries: list[JournalRow]
    checksums: NDArray[np.uint32] | None
    changed: set[int]
    dirty: Segment | None
    is_lost: bool


def read_known(core: Core, row: StageRow, segment: Segment) -> Known | None:
    """The stage as it is known now; None if the catalog has lost it. Raises DamagedRow."""
    with core.catalog.read() as view:
        stage = view.stage_row(row.filter_number, row.chain, row.stage)
        owner = core.owner(view, row.filter_number)
        entries = view.journal_of(row.number)
        checksums = view.checksums(row.number, segment.header.blocks)
    if stage is None or stage.number != row.number:
        return None
    boot = None if owner is None or stage.sealed else owner.dirty_boot
    if boot in (None, core.boot):
        dirty = None if boot is None else segment
        changed = changed_blocks(stage, entries, dirty)
        return Known(stage, entries, checksums, changed, dirty, is_lost=False)
    changed = set(range(segment.header.blocks)) - blocks_in(stage.damaged)
    return Known(stage, entries, checksums, changed, None, is_lost=True)


def changed_blocks(
    row: StageRow, entries: abc.Iterable[JournalRow], dirty: Segment | None
) -> set[int]:
    """Blocks that have no checksum because they have changed since; not those of ones.

    Journal rows name them, and so do the flags of a segment whose filter is dirty.
    """
    touched = touched_blocks(row.spec.geometry, [entry.prints for entry in entries])
    if dirty is not None:
        touched |= dirty.flagged_blocks()
    return touched - blocks_in(row.damaged)


def _expected(core: Core, known: Known) -> int:
    """How many bits must be set; -1 if that is not known, in the middle of an add."""
    if known.dirty is None:
        return known.entries[-1].set_bits if known.entries else known.stage.set_bits
    set_bits: int = known.dirty.words[WORD_SET_BITS]
    return -1 if core.words[APPLYING] == known.stage.number else set_bits


def _unapplied(row: StageRow, segment: Segment, entries: list[JournalRow]) -> tuple[int, ...]:
    geometry = row.spec.geometry
    return tuple(
        entry.sequence
        for entry in entries
        if not kernels.find([segment.shared], [geometry], entry.prints).all()
    )


@dataclass(frozen=True, slots=True)
class _Moment:
    """Facts of which at least one differs once a bit of the stage has changed."""

    transaction: int
    sequence: int
    dirty_boot: str | None
    stage: StageRow | None


def _moment(core: Core, row: StageRow) -> _Moment:
    with core.catalog.read() as view:
        sequence = view.counters().sequence
        owner = core.owner(view, row.filter_number)
        current = view.stage_row(row.filter_number, row.chain, row.stage)
        transaction = view.transaction
    return _Moment(transaction, sequence, None if owner is None else owner.dirty_boot, current)


def _has_moved(core: Core, row: StageRow, before: _Moment) -> bool:
    """Whether the stage may have changed: not without a commit, else the rows are compared."""
    with core.catalog.read() as view:
        if view.transaction == before.transaction:
            return False
    return replace(_moment(core, row), transaction=before.transaction) != before
