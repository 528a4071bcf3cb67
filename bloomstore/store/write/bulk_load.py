"""Bulk load: many keys at once, without a journal, each stage written once from start to end.

Under the writer lock: the newest stage is copied into anonymous memory, the keys are inserted
there, and the result becomes a new file that replaces the old one in one commit; a stage that
gets full is sealed, and the next keys go into a new one. Nothing is acknowledged before the last
commit, and every commit before it leaves a sound filter with some of the keys.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.crash import crash_point
from bloomstore.filters.chain import Chain
from bloomstore.keys import is_column
from bloomstore.store.durable import stage_files, trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.view import FilterView, load_view
from bloomstore.store.write import growth, plan
from bloomstore.store.write.plan import Prints
from bloomstore.store.write.stage_in_memory import StageInMemory

# Fewer keys go through the journal: 2^20 of them are 16 MiB, two checkpoints.
LEAST_KEYS = 1 << 20


def is_bulk(view: FilterView, keys: object) -> bool:
    """Whether these keys justify a new file: many, and an eighth of the keys there are."""
    if not is_column(keys):
        return False  # a generator, a set: their code must not run under the writer lock
    count = len(keys)  # type: ignore[arg-type]
    if count < LEAST_KEYS or view.coming is not None or not view.state.is_sound:
        return False
    return 8 * count >= sum(stage.row.spec.capacity for stage in view.live.stages)


def load(core: Core, view: FilterView, chunks: abc.Iterable[Prints]) -> int:
    """Adds all chunks; returns how many keys were new. Called under the writer lock."""
    added = 0
    trust.prepare(core, view.live)
    chain = load_view(core, view.row.name).live
    target: StageInMemory | None = None
    for chunk in chunks:
        prints = plan.unknown_to_older(chain, chunk)
        while len(prints):
            if not plan.has_room(chain):
                chain = growth.publish_next(core, view.row, chain, added)
            if target is None:
                target = StageInMemory(core, view.row, chain.newest)
            taken, new = target.insert(prints)
            added += new
            prints = prints[taken:]
            if len(prints):
                chain = growth.grow(core, view.row, _publish(core, chain, target), added)
                target = None
                prints = plan.unknown_to_older(chain, prints)
    if target is not None:
        _publish(core, chain, target)
    return added


def _publish(core: Core, chain: Chain, target: StageInMemory) -> Chain:
    """Writes the stage as a new file, and gives the chain with it."""
    fresh = target.write(core)
    crash_point("bulk load: stage published")
    stage = trust.stage_of(core, fresh)
    stage_files.bury(core)
    return Chain([*chain.stages[:-1], stage])
