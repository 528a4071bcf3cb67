"""The stages of one filter, in order, as one object that can be asked.

In: fingerprints, or plain keys; out: reported or not. A chain is swapped as a whole when the list
of stages changes. A thread that still holds the old chain keeps its mappings alive, so it can go on
using it safely.

Invariants
  1. `find` looks at bits only. `doubt` says whether its "no" may be believed: a chain with a stage
     that could not be read or trusted has a doubt, and its owner answers "maybe" to everything.
  2. No bit of a block that has a checksum is looked at before the block was verified; a damaged
     block reports every key (`damage` names it). Once all blocks are verified this costs nothing.
  3. The newest stages are asked first: they hold the most keys.

Not here: setting bits and growing (store), how bits are found (kernels), keys that the kernels
cannot read by themselves (keys).
"""

from __future__ import annotations

import collections.abc as abc
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.kernels.contract import is_plain_int64
from bloomstore.keys.batches import check_unchanged
from bloomstore.layout.contract import Geometry
from bloomstore.segment.blocks import blocks_in, touched_blocks
from bloomstore.segment.segment import Segment

Prints = NDArray[np.uint64]

# Keys of one call of a kernel: 10 ms by one thread, after which signals are looked at.
SLICE_KEYS = 1 << 20


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the catalog with its mapped segment, or the reason why it has none to trust.

    is_transient: the reason lies outside the store (no descriptor, no memory), so a later
    attempt may succeed.
    """

    row: StageRow
    segment: Segment | None
    doubt: str | None = None
    is_transient: bool = False

    @property
    def damaged(self) -> set[int]:
        """Blocks that are ones, in the file or for this process: they report every key."""
        blocks = blocks_in(self.row.damaged)
        return blocks if self.segment is None else blocks | self.segment.damaged


class Chain:
    """The stages of one chain, oldest first."""

    __slots__ = ("_unverified", "_verifying", "doubt", "geometries", "missing", "stages", "vectors")

    def __init__(self, stages: abc.Iterable[Stage], missing: str | None = None) -> None:
        """`missing` says why these are not all stages of the chain, which takes no keys then."""
        self.stages: tuple[Stage, ...] = tuple(stages)
        self.missing = missing if self.stages else missing or "the catalog lists no stage"
        doubts = [self.missing, *(stage.doubt for stage in self.stages)]
        self.doubt: str | None = "; ".join(filter(None, doubts)) or None
        readable = self._readable(self.stages)
        self.geometries: tuple[Geometry, ...] = tuple(geometry for _, geometry in readable)
        self.vectors: tuple[NDArray[np.uint8], ...] = ()
        # In this order: a segment that is verified has its final vector. The lock protects both.
        self._unverified = [
            segment for segment, _ in readable if segment.unverified or segment.is_blind
        ]
        self._verifying = threading.RLock()  # see Segment
        self._take_vectors()

    @property
    def newest(self) -> Stage:
        """The stage that takes new keys."""
        return self.stages[-1]

    @property
    def is_doubt_transient(self) -> bool:
        """Whether some of the doubt may be gone when the stages are opened again."""
        return any(stage.is_transient for stage in self.stages)

    @property
    def is_verified(self) -> bool:
        """Whether every block that has a checksum was compared with it."""
        return not self._unverified

    @property
    def damage(self) -> str | None:
        """Which verified blocks are damaged and report every key; None if none is."""
        for stage in self.stages:
            if stage.row.damaged or (stage.segment is not None and stage.segment.damaged):
                return f"stage {stage.row.stage}: damaged blocks {sorted(stage.damaged)}"
        return None

    def find(self, prints: Prints) -> NDArray[np.bool_]:
        """Which keys the bits of any stage report."""
        if self._unverified:
            self.verify(prints)
            if any(segment.is_blind for segment in self._unverified):
                return np.ones(len(prints), np.bool_)
        return kernels.find(self.vectors, self.geometries, prints)

    def find_keys(self, keys: abc.Iterable[Any], seed: int) -> NDArray[np.bool_] | None:
        """The same for plain keys, without fingerprints in between.

        None where that cannot be done: the chain is not verified yet, or the kernels cannot read
        keys of this kind. The kernels let go of the GIL and ask for an array in several threads:
        two take together the processor time of one (19 and 21 ns per absent key of 10^7), and 0.58
        of its elapsed time on two nearly idle cores (10^6 keys).
        """
        if not self.is_verified:
            return None
        if type(keys) is list:
            count = len(keys)
            answers = np.zeros(count, np.bool_)
            answered = kernels.find_keys(self.vectors, self.geometries, keys, seed, answers)
            check_unchanged(keys, count)
            return answers if answered == count else None
        if type(keys) is not np.ndarray or keys.ndim != 1 or not is_plain_int64(keys):
            return None
        answers = np.zeros(len(keys), np.bool_)
        for start in range(0, len(keys), SLICE_KEYS):
            part = slice(start, start + SLICE_KEYS)
            kernels.find_keys(self.vectors, self.geometries, keys[part], seed, answers[part])
        return answers

    def find_in_older(self, prints: Prints) -> NDArray[np.bool_]:
        """Which keys any stage but the newest reports; stages in doubt or damaged do not count."""
        if self._unverified:
            self.verify(prints)
        trusted = [stage for stage in self.stages[:-1] if stage.doubt is None]
        older = [
            (segment.vector, geometry)
            for segment, geometry in self._readable(
                [stage for stage in trusted if not stage.row.damaged]
            )
            if not segment.damaged
        ]
        vectors, geometries = [vector for vector, _ in older], [shape for _, shape in older]
        return kernels.find(vectors, geometries, prints)

    def verify(self, prints: Prints) -> None:
        """Verifies the blocks that these keys need, and as many more as there are keys."""
        with self._verifying:
            for segment in self._unverified:
                geometry = segment.header.spec.geometry
                if len(prints) * geometry.hashes >= segment.unverified:
                    segment.verify_all()
                else:
                    segment.verify(touched_blocks(geometry, [prints]), more=len(prints))
            left = [
                segment for segment in self._unverified if segment.unverified or segment.is_blind
            ]
            self._take_vectors()
            self._unverified = left

    def _take_vectors(self) -> None:
        self.vectors = tuple(segment.vector for segment, _ in self._readable(self.stages))

    @staticmethod
    def _readable(stages: abc.Sequence[Stage]) -> list[tuple[Segment, Geometry]]:
        """Mapped stages, newest first."""
        return [
            (stage.segment, stage.row.spec.geometry)
            for stage in reversed(stages)
            if stage.segment is not None
        ]
