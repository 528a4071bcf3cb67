"""The stages of one filter, in order, as one object that can be asked.

In: fingerprints, out: reported or not. A chain is swapped as a whole when the stage list changes;
whoever holds the old one keeps its mappings alive and goes on safely.

Invariants
  1. `find` looks at bits only. Whether its "no" may be believed is `doubt`: a chain with a stage
     that could not be read or trusted has one, and its owner answers "maybe" to everything.
  2. No bit of a sealed stage is looked at before its block was verified; a damaged block reports
     every key (`damage` says so). Once all blocks are verified this costs nothing.
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
from bloomstore.segment.blocks import touched_blocks
from bloomstore.segment.segment import Segment
from bloomstore.spec.geometry import Geometry

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


class Chain:
    """The stages of one chain, oldest first."""

    __slots__ = ("_unverified", "_verifying", "doubt", "geometries", "stages", "vectors")

    def __init__(self, stages: abc.Iterable[Stage]) -> None:
        self.stages: tuple[Stage, ...] = tuple(stages)
        doubts = [stage.doubt for stage in self.stages if stage.doubt is not None]
        self.doubt: str | None = "; ".join(doubts) if doubts else None
        if not self.stages:
            self.doubt = "the catalog lists no stage"
        readable = self._readable(self.stages)
        self.geometries: tuple[Geometry, ...] = tuple(geometry for _, geometry in readable)
        self.vectors: tuple[NDArray[np.uint8], ...] = ()
        # In this order: a segment that is verified has its final vector. The lock protects both.
        self._unverified = [segment for segment, _ in readable if segment.unverified]
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
        """Whether every block of every sealed stage was verified."""
        return not self._unverified

    @property
    def damage(self) -> str | None:
        """Which verified blocks were damaged; they answer "maybe"."""
        for stage in self.stages:
            if stage.segment is not None and stage.segment.damaged:
                return f"stage {stage.row.stage}: damaged blocks {sorted(stage.segment.damaged)}"
        return None

    def find(self, prints: Prints) -> NDArray[np.bool_]:
        """Which keys the bits of any stage report."""
        if self._unverified:
            self._verify(prints)
        return kernels.find(self.vectors, self.geometries, prints)

    def find_in_older(self, prints: Prints) -> NDArray[np.bool_]:
        """Which keys any stage but the newest certainly has; one in doubt or damaged has none."""
        if self._unverified:
            self._verify(prints)
        trusted = [stage for stage in self.stages[:-1] if stage.doubt is None]
        older = [
            (segment.vector, geometry)
            for segment, geometry in self._readable(trusted)
            if not segment.damaged
        ]
        vectors, geometries = [vector for vector, _ in older], [shape for _, shape in older]
        return kernels.find(vectors, geometries, prints)

    def _verify(self, prints: Prints) -> None:
        """Verifies the blocks that these keys need, and as many more as there are keys."""
        with self._verifying:
            for segment in self._unverified:
                geometry = segment.header.spec.geometry
                waiting = sorted(segment.unverified.copy())
                if len(prints) * geometry.hashes >= len(waiting):
                    needed = set(waiting)
                else:
                    needed = touched_blocks(geometry, [prints])
                    needed.update(waiting[: len(prints)])
                segment.verify(needed)
            left = [segment for segment in self._unverified if segment.unverified]
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
