"""Bulk load: many keys at once, without a journal, each stage written once from start to end.

Under the writer lock: the newest stage is copied into anonymous memory, the keys are inserted
there, and the result becomes a new file that replaces the old one in one commit; a stage that
gets full is sealed and the next one goes on. Nothing is acknowledged before the last commit, and
every commit before it leaves a sound filter with some of the keys.

Why: setting random bits of a large mapping dirties nearly all of its pages, and the kernel writes
each of them back many times; a file written in order goes to disk at its speed, once.
"""

from __future__ import annotations

import collections.abc as abc

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.crash import crash_point
from bloomstore.filters.chain import Chain, Stage
from bloomstore.keys import is_column
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import stage_files, trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.view import FilterView, load_view
from bloomstore.store.write import counts, growth, plan
from bloomstore.store.write.plan import Prints

# Fewer keys go through the journal: 2^20 of them are 16 MiB, two checkpoints.
LEAST_KEYS = 1 << 20


def is_bulk(view: FilterView, keys: object) -> bool:
    """Whether these keys are worth a file of their own: many, and an eighth of what there is."""
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
    target: _Target | None = None
    for chunk in chunks:
        prints = plan.unknown_to_older(chain, chunk)
        while len(prints):
            if not plan.has_room(chain):
                chain = growth.publish_next(core, view.row, chain, added)
            if target is None:
                target = _Target(core, view.row, chain.newest)
            taken, new = target.insert(prints)
            added += new
            prints = prints[taken:]
            if len(prints):
                chain = target.publish(chain)
                chain = growth.grow(core, view.row, chain, added)
                target = None
                prints = plan.unknown_to_older(chain, prints)
    if target is not None:
        target.publish(chain)
    return added


class _Target:
    """The newest stage in anonymous memory."""

    def __init__(self, core: Core, row: FilterRow, stage: Stage) -> None:
        assert stage.segment is not None
        self._core = core
        self._row = row
        self._stage: StageRow = stage.row
        self._vector = np.array(stage.segment.shared)
        self._set_bits, self._keys = self._counts(stage)

    def _counts(self, stage: Stage) -> tuple[int, int]:
        if self._row.durability == "commit":
            return counts.of_stage(self._core, stage)
        counts.mark_dirty(self._core, self._row)
        assert stage.segment is not None
        return stage.segment.words[WORD_SET_BITS], stage.segment.words[WORD_KEYS]

    def insert(self, prints: Prints) -> tuple[int, int]:
        """Sets bits in memory; returns how many keys were gone through, and how many were new."""
        spec = self._stage.spec
        taken, new, bits = kernels.insert(
            self._vector,
            spec.geometry,
            prints,
            self._stage.bits_left(self._set_bits),
            spec.keys_left(self._keys),
        )
        fresh = int(np.count_nonzero(new))
        self._set_bits += bits
        self._keys += fresh
        return taken, fresh

    def publish(self, chain: Chain) -> Chain:
        """Writes the vector as a new file, and gives the chain with it."""
        core = self._core
        with core.catalog.read() as view:
            entries = view.journal_of(self._stage.number)
        known = self._stage.with_counts(self._set_bits, self._keys)
        fresh = stage_files.replace_segment(core, known, self._vector, entries)
        crash_point("bulk load: stage published")
        stage = trust.stage_of(core, fresh)
        stage_files.bury(core)
        return Chain([*chain.stages[:-1], stage])
