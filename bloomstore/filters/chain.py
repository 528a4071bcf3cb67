"""The stages of one filter, in order, as one object that can be asked.

In: fingerprints, out: reported or not. A chain is swapped as a whole when the stage list changes;
whoever holds the old one keeps its mappings alive and goes on safely.

Invariants
  1. `find` looks at bits only. Whether its "no" may be believed is `doubt`: a chain with a stage
     that could not be read or trusted has one, and its owner answers "maybe" to everything.
  2. No bit of a block that has a checksum is looked at before it was verified; a damaged block
     reports every key (`damage` says so). Once all blocks are verified this costs nothing.
  3. Newest stages are asked first: they hold the most keys.

Not here: setting bits and growing (store), how bits are found (kernels).
"""

from __future__ import annotations

import collections.abc as abc
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.layout.contract import Geometry
from bloomstore.segment.blocks import blocks_in, touched_blocks
from bloomstore.segment.segment import Segment

Prints = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the catalog with its mapped segment, or the reason why it has none to trust.

    passes: the reason lies outside of the store (no descriptor, no memory): ask again later.
    """

    row: StageRow
    segment: Segment | None
    doubt: str | None = None
    passes: bool = False

    @property
    def damaged(self) -> set[int]:
        """Blocks that are ones, in the file or for this process: they report every key."""
        found = blocks_in(self.row.damaged)
        return found if self.segment is None else found | self.segment.damaged


class Chain:
    """The stages of one chain, oldest first."""

    __slots__ = ("_unverified", "_verifying", "doubt", "geometries", "missing", "stages", "vectors")

    def __init__(self, stages: abc.Iterable[Stage], missing: str | None = None) -> None:
        """`missing` says why these are not all stages of the chain; it takes no keys then."""
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
    def doubt_passes(self) -> bool:
        """Whether some of the doubt may be gone at a later look."""
        return any(stage.passes for stage in self.stages)

    @property
    def is_verified(self) -> bool:
        """Whether every block that must be verified was."""
        return not self._unverified

    @property
    def damage(self) -> str | None:
        """Which verified blocks were damaged; they answer "maybe"."""
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

    def find_in_older(self, prints: Prints) -> NDArray[np.bool_]:
        """Which keys any stage but the newest certainly has; one in doubt or damaged has none."""
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
