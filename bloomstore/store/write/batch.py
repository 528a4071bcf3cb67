"""A batch: keys collected in memory, acknowledged together at its end.

It belongs to the block that opened it (batch_blocks.py) and takes no lock until its end. Inside,
lookups and `add` results include the collected keys; other threads do not see them. The end is one
LMDB transaction over all filters of durability `commit`, then the bits. An exception inside
discards everything. A nested batch joins the outer one.

A batch of more than MAX_PRINTS_PER_CALL keys commits in parts, each atomic, all acknowledged by
the end.
"""

from __future__ import annotations

import collections.abc as abc

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow
from bloomstore.errors import FilterFull
from bloomstore.filters.chain import Chain
from bloomstore.held import whole
from bloomstore.store.durable import checkpoint, stage_files, trust
from bloomstore.store.durable.holding import writing
from bloomstore.store.process.open_files import Core
from bloomstore.store.view import FilterView, load_view
from bloomstore.store.write import commit, growth, plan, single_commit, writer
from bloomstore.store.write.plan import Part, Prints


class Batch:
    """Keys collected for several filters, by filter number."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[bytes, None]] = {}
        self.names: dict[int, str] = {}
        # The view that each filter had when keys were collected for it last, and its open files.
        self.views: dict[int, tuple[Core, FilterView]] = {}

    def collect(
        self, core: Core, view: FilterView, prints: Prints, known: NDArray[np.bool_]
    ) -> int:
        """Takes keys for a filter; returns how many neither it nor this batch had before."""
        number = view.row.number
        self.names[number] = view.row.name
        self.views[number] = core, view
        mine = self._keys.setdefault(number, {})
        packed = as_bytes(prints)
        fresh = {
            one
            for one, is_known in zip(packed, known.tolist(), strict=True)
            if not (is_known or one in mine)
        }
        mine.update(dict.fromkeys(packed))
        return len(fresh)

    def find(self, number: int, prints: Prints) -> NDArray[np.bool_]:
        """Which of these keys were collected for this filter."""
        mine = self._keys.get(number)
        if not mine:
            return np.zeros(len(prints), np.bool_)
        return np.fromiter((one in mine for one in as_bytes(prints)), np.bool_, len(prints))

    def parts(self) -> abc.Iterator[dict[int, Prints]]:
        """The collected keys by filter number, in parts that one transaction can take."""
        part: dict[int, Prints] = {}
        room = kernels.MAX_PRINTS_PER_CALL
        for number, mine in self._keys.items():
            prints = np.frombuffer(b"".join(mine), dtype=np.uint64).reshape(-1, 2)
            while len(prints):
                part[number] = prints[:room]
                prints = prints[room:]
                room -= len(part[number])
                if not room:
                    yield part
                    part, room = {}, kernels.MAX_PRINTS_PER_CALL
        if part:
            yield part


def as_bytes(prints: Prints) -> list[bytes]:
    """Fingerprints as 16-byte strings."""
    packed = np.ascontiguousarray(prints).tobytes()
    return [packed[at : at + 16] for at in range(0, len(packed), 16)]


def add_together(core: Core, wanted: abc.Sequence[tuple[FilterView, Prints]]) -> None:
    """Adds keys to several filters with one durable commit. Called under the writer lock."""
    parts: list[Part] = []
    full: list[tuple[FilterRow, Chain]] = []
    at_once: list[tuple[FilterView, Prints]] = []
    for view, prints in wanted:
        if view.row.durability == "process":
            at_once.append((view, prints))
            continue
        _plan_chain(core, view.row, view.live, prints, parts, full)
        if view.coming is not None:
            try:
                _plan_chain(core, writer.coming_row(view.row), view.coming, prints, parts, full)
            except FilterFull:  # the rebuild's alone, see writer.add
                stage_files.discard_coming(core, view.row)
                fresh = [(load_view(core, old.row.name), mine) for old, mine in wanted]
                add_together(core, fresh)
                return
    journal_bytes = commit.write(core, parts) if parts else 0
    for row, chain in full:
        checkpoint.seal(core, row, chain.newest.row)
    for view, prints in at_once:
        writer.add(core, view, prints)
    if parts:
        checkpoint.if_due(core, parts[-1].stage, journal_bytes)


def _plan_chain(
    core: Core,
    row: FilterRow,
    chain: Chain,
    prints: Prints,
    parts: list[Part],
    full: list[tuple[FilterRow, Chain]],
) -> None:
    """Plans all keys of one chain, publishing new stages as they are needed; nothing is set yet."""
    trust.prepare(core, chain, prints)
    prints = prints[~chain.find_in_older(prints)]
    while len(prints):
        taken = 0
        if plan.has_room(chain):
            part, taken = plan.plan(core, chain.newest, prints)
            if part is not None:
                parts.append(part)
        if taken == len(prints):
            return
        prints = prints[taken:]
        grown = growth.publish_next(core, row, chain)
        if plan.has_room(chain):
            full.append((row, chain))
        chain = grown
        prints = prints[~chain.find_in_older(prints)]


@whole
def finish(core: Core, batch: Batch) -> None:
    """Makes all collected keys durable. Raises FilterNotFound for a dropped filter."""
    for part in batch.parts():
        if _finish_at_once(core, batch, part):
            continue
        with writing(core):
            wanted = [
                (load_view(core, batch.names[number], number), prints)
                for number, prints in part.items()
            ]
            add_together(core, wanted)


def _finish_at_once(core: Core, batch: Batch, part: dict[int, Prints]) -> bool:
    """Whether one commit was all that there was to do (single_commit.py); else nothing was done.

    The views are those of the handles. A view whose filter answers "maybe" to everything, or whose
    blocks were not all verified, leaves the work to the general road, as does one of other files:
    a batch that came into this process by a fork.
    """
    wanted = []
    for number, prints in part.items():
        files, view = batch.views[number]
        if files is not core or view.row.durability != "commit":
            return False
        if not (view.state.is_sound and view.live.is_verified) or view.live.damage is not None:
            return False
        wanted.append((view, prints))
    return single_commit.add(core, wanted) is not None
