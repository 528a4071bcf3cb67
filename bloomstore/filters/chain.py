"""The stages of one filter, in order, as one immutable object that can be asked.

In: fingerprints, out: reported or not. A chain is swapped as a whole when the stage list changes;
whoever holds the old one keeps its mappings alive and goes on safely.

Invariants
  1. `find` looks at bits only. Whether its "no" may be believed is `doubt`: a chain with a stage
     that could not be read or trusted has one, and its owner answers "maybe" to everything.
  2. Newest stages are asked first: they hold the most keys.

Not here: setting bits and growing (store), how bits are found (kernels).
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.segment.segment import Segment
from bloomstore.spec.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the catalog with its mapped segment, or the reason why it has none to trust."""

    row: StageRow
    segment: Segment | None
    doubt: str | None = None


class Chain:
    """The stages of one chain, oldest first."""

    __slots__ = ("_older_geometries", "_older_vectors", "doubt", "geometries", "stages", "vectors")

    def __init__(self, stages: abc.Iterable[Stage]) -> None:
        self.stages: tuple[Stage, ...] = tuple(stages)
        readable = [
            (stage.segment.vector, stage.row.spec.geometry)
            for stage in reversed(self.stages)
            if stage.segment is not None
        ]
        self.vectors: tuple[NDArray[np.uint8], ...] = tuple(vector for vector, _ in readable)
        self.geometries: tuple[Geometry, ...] = tuple(geometry for _, geometry in readable)
        skipped = 1 if self.stages and self.stages[-1].segment is not None else 0
        self._older_vectors = self.vectors[skipped:]
        self._older_geometries = self.geometries[skipped:]
        doubts = [stage.doubt for stage in self.stages if stage.doubt is not None]
        self.doubt: str | None = "; ".join(doubts) if doubts else None
        if not self.stages:
            self.doubt = "the catalog lists no stage"

    @property
    def newest(self) -> Stage:
        """The stage that takes new keys."""
        return self.stages[-1]

    def find(self, prints: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which keys the bits of any stage report."""
        return kernels.find(self.vectors, self.geometries, prints)

    def find_in_older(self, prints: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which keys the bits of any stage but the newest report."""
        return kernels.find(self._older_vectors, self._older_geometries, prints)
