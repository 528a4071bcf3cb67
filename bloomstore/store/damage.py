"""Whether the bits of one stage are what the catalog says they must be.

Blocks that did not change since the last checkpoint have checksums. The others must at least not
change the number of set bits, which the journal knows exactly: an odd number of flips, or a zeroed
run, shows. A stage that somebody changes meanwhile, or whose filter is dirty, cannot be judged.

Looks only; nothing is changed here. Who asks: a process at its first use of an active stage
(core.py), `check`, `repair`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.segment.blocks import damaged_blocks, touched_blocks
from bloomstore.segment.segment import Segment

if TYPE_CHECKING:
    from bloomstore.store.core import Core


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with the bits of a stage.

    blocks: cannot be trusted. unapplied: journal rows whose bits are missing. set_bits: how many
    are set and how many must be, when these differ. lacks_checksums: the catalog has lost them.
    """

    blocks: tuple[int, ...] = ()
    unapplied: tuple[int, ...] = ()
    set_bits: tuple[int, int] | None = None
    lacks_checksums: bool = False


def examine(core: Core, row: StageRow, segment: Segment) -> Damage | None:
    """The damage of a stage, or None when it cannot be judged just now. Raises DamagedRow."""
    before = _moment(core, row)
    if before.stage is None or before.stage.number != row.number:
        return None
    if before.dirty_boot is not None and not row.sealed:
        return None
    with core.catalog.read() as view:
        entries = [entry for entry in view.journal() if entry.number == row.number]
        checksums = view.checksums(row.number, segment.header.blocks)
    geometry = row.spec.geometry
    unapplied = tuple(
        entry.sequence
        for entry in entries
        if not kernels.find([segment.vector], [geometry], entry.prints).all()
    )
    touched = touched_blocks(geometry, [entry.prints for entry in entries])
    asked = [block for block in range(segment.header.blocks) if block not in touched]
    if checksums is None:
        blocks, found = list(range(segment.header.blocks)), kernels.count_bits(segment.vector)
    else:
        # The checksums count set bits on their way; those of the other blocks are added.
        blocks, found = damaged_blocks(segment.header, segment.vector, checksums, asked)
        found += sum(kernels.count_bits(segment.block(block)) for block in touched)
    expected = entries[-1].set_bits if entries else before.stage.set_bits
    differs = found != expected and not unapplied
    if differs and not blocks:
        blocks = sorted(touched) or asked
    if _has_moved(core, row, before):
        return None
    return Damage(
        tuple(blocks), unapplied, (found, expected) if differs else None, checksums is None
    )


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is different once somebody has changed a bit of the stage."""

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
    """Nothing has when nobody has committed anything; else the rows are compared."""
    with core.catalog.read() as view:
        if view.transaction == before.transaction:
            return False
    return replace(_moment(core, row), transaction=before.transaction) != before
