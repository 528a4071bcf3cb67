"""Whether the bits of one stage are what the catalog says they must be.

Blocks that did not change since the last checkpoint have checksums. The others must at least not
change the number of set bits, which the journal knows exactly: an odd number of flips, or a zeroed
run, shows. A stage that somebody changes meanwhile, or whose filter is dirty, cannot be judged.

Looks only; nothing is changed here. Who asks: a process at its first use of an active stage
(core.py), `check`, `repair`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    _, dirty, current = before
    if current is None or current.number != row.number or (dirty is not None and not row.sealed):
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
        blocks = list(range(segment.header.blocks))
    else:
        blocks = damaged_blocks(segment.header, segment.vector, checksums, asked)
    expected = entries[-1].set_bits if entries else current.set_bits
    found = kernels.count_bits(segment.vector)
    differs = found != expected and not unapplied
    if differs and not blocks:
        blocks = sorted(touched) or asked
    if _moment(core, row) != before:
        return None
    return Damage(
        tuple(blocks), unapplied, (found, expected) if differs else None, checksums is None
    )


def _moment(core: Core, row: StageRow) -> tuple[int, str | None, StageRow | None]:
    """Changes whenever somebody changes a bit of this stage."""
    with core.catalog.read() as view:
        sequence = view.counters().sequence
        owner = core.owner(view, row.filter_number)
        current = view.stage_row(row.filter_number, row.chain, row.stage)
    return sequence, None if owner is None else owner.dirty_boot, current
