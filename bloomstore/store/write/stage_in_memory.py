"""The newest stage of a chain in private memory: many keys are inserted, then it is one new file.

Inserting there is one pass over the vector; through the journal it is preview, apply and, at the
checkpoint, apply again: 145 ns per key against 634 at 10^7 keys (13 hashes, 25 MB). Setting random
bits of a large mapping also dirties nearly all of its pages, which the kernel writes back many
times; a file that is written in order goes to disk once, at the disk's speed.

Nothing is durable before `write`. A bulk load (bulk_load.py) holds the writer lock from the copy to
the file. A rebuild (coming_chain.py) holds it for neither, so writers may have added keys to the
stage's file meanwhile: `merge` takes them in before `write`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.errors import StoreFailed
from bloomstore.filters.chain import Stage
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import stage_files
from bloomstore.store.process.open_files import Core
from bloomstore.store.write import counts
from bloomstore.store.write.plan import Prints


class Outgrown(StoreFailed):
    """Writers have filled the stage: keys inserted since the last `write` are void."""


class StageInMemory:
    """A private copy of one stage, whose blocks were verified. Made under the writer lock.

    row: of the stage's filter, with the spec of the chain that the stage belongs to.
    """

    def __init__(self, core: Core, row: FilterRow, stage: Stage) -> None:
        assert stage.segment is not None
        self._filter = row
        self._stage: StageRow = stage.row
        self._vector: NDArray[np.uint8] = np.array(stage.segment.shared)
        self._set_bits, self._keys = self._counts(core, stage)
        self._keys_on_disk = self._keys

    @property
    def number(self) -> int:
        """The number of the segment that this copies, or was last written as."""
        return self._stage.number

    def _counts(self, core: Core, stage: Stage) -> tuple[int, int]:
        if self._filter.durability == "commit":
            return counts.of_stage(core, stage)
        counts.mark_dirty(core, self._filter)
        assert stage.segment is not None
        return stage.segment.words[WORD_SET_BITS], stage.segment.words[WORD_KEYS]

    def insert(self, prints: Prints) -> tuple[int, int]:
        """Sets bits in memory; returns how many keys it went through, and how many were new.

        It goes through all of them unless the stage gets full.
        """
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

    def has(self, prints: Prints) -> bool:
        """Whether the bits of all these keys are set."""
        return bool(kernels.find([self._vector], [self._stage.spec.geometry], prints).all())

    def merge(self, core: Core, stage: Stage) -> None:
        """Takes in the keys that writers have added to the stage's file. Under the writer lock.

        Raises Outgrown if the newest stage of the chain, given here, is another one by now.
        """
        if stage.row.number != self.number or stage.segment is None or stage.doubt is not None:
            raise Outgrown(f"the rebuild of {self._filter.name!r} was outgrown by its writers")
        np.bitwise_or(self._vector, stage.segment.shared, out=self._vector)
        self._set_bits = kernels.count_bits(self._vector)
        self._keys += self._counts(core, stage)[1] - self._keys_on_disk
        self._stage = stage.row

    def write(self, core: Core) -> StageRow:
        """Makes it durable: a new file takes the place of the stage's. Under the writer lock."""
        with core.catalog.read() as view:
            entries = view.journal_of(self.number)
        known = self._stage.with_counts(self._set_bits, self._keys)
        self._stage = stage_files.replace_segment(core, known, self._vector, entries)
        self._keys_on_disk = self._keys
        return self._stage
