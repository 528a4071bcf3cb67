"""A coming chain that is a copy of another filter's chain, bit by bit.

The keys of a filter cannot be listed, but its bits can be copied: stage by stage, with their sizes,
counts and times. The other filter is read as a lookup reads it, without its lock: keys added to it
before the copy began are in the copy.

All of it happens under one hold of this store's writer lock, so that no writer adds to half a copy.
Readers do not wait; writers wait for about as long as the files take to be written.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.errors import NotCopyable
from bloomstore.filters.chain import Stage
from bloomstore.held import whole
from bloomstore.store.durable import stage_files
from bloomstore.store.process.damage import examine
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.open_store import OpenStore
from bloomstore.store.view import FilterView, counts_of, load_view
from bloomstore.store.write import writer
from bloomstore.store.write.coming_chain import Rebuild, begin_in


@whole
def begin_copy(store: OpenStore, name: str, other: OpenStore, other_name: str) -> Rebuild:
    """Starts a rebuild whose coming chain copies the other filter, with its spec.

    Raises NotCopyable if the other one cannot be trusted, SpecError if its seed is another one.
    """
    with store._changing("a rebuild") as core:
        view = _trusted(other, other_name)
        new = begin_in(store, core, name, view.row.spec)
        try:
            counted = counts_of(other._core, view.row.number, view.row.live_chain)
            keys = {row.number: row.keys for row in counted}
            for stage in view.live.stages:
                _copy(core, name, stage, keys.get(stage.row.number, stage.row.keys))
                _require_sound_blocks(other, stage)
            _trusted(other, other_name)
        except BaseException:
            new.discard_in(core)
            raise
        stage_files.bury(core)
        return new


def _trusted(store: OpenStore, name: str) -> FilterView:
    view = load_view(store._core, name)
    if not view.state.is_sound:
        raise NotCopyable(f"filter {name!r} of {store.path} cannot be copied: {view.state}")
    return view


def _copy(core: Core, name: str, stage: Stage, keys: int) -> None:
    """Makes the same stage in the coming chain of this filter, not sealed.

    A kill may leave it the newest, and then it must take keys; the switch seals all but the newest.
    """
    view = load_view(core, name)
    assert view.coming is not None
    assert stage.segment is not None
    theirs = stage.row
    newest: StageRow = view.coming.newest.row  # `begin` has made the first stage
    if theirs.stage > 0:
        row = writer.coming_row(view.row)
        newest = stage_files.new_stage(core, row, newest.chain, theirs.stage, theirs.spec)
    stage.segment.verify_all()
    vector = np.array(stage.segment.shared)
    wanted = replace(
        newest,
        spec=theirs.spec,
        opened_at=theirs.opened_at,
        opened_boot=theirs.opened_boot,
        opened_clock=theirs.opened_clock,
        filled_at=theirs.filled_at,
        set_bits=kernels.count_bits(vector),
        keys=keys,
    )
    stage_files.replace_segment(core, wanted, vector, [])


def _require_sound_blocks(store: OpenStore, stage: Stage) -> None:
    """Called after the copy, because a block that was damaged before it still is."""
    assert stage.segment is not None
    damaged = stage.damaged
    if not stage.row.sealed:
        damage = examine(store._core, stage.row, stage.segment)
        damaged = damaged if damage is None else damaged.union(damage.blocks)
    if damaged:
        what = f"damaged blocks {sorted(damaged)}"
        raise NotCopyable(f"{stage.segment.path} cannot be copied: {what}")
