"""The cost of a filter as it grows: its chain of stages, computed and not made.

In: a spec and a number of keys, out: steps, one per stage, until that many keys fit. Each step
tells what the whole filter is like at the moment its stage is full.

    lines   cache lines that one lookup touches at most, over all stages; when the filter is larger
            than memory, each of them may be a page fault. `hashes` per plain or sliced vector, one
            per blocked vector. An absent key stops at the first unset bit, so it touches fewer.

Errors are expectations from theory/; of the chains of Dynamic and Flexible they are upper bounds.
Not here: tables and pictures of it (cli).
"""

from __future__ import annotations

from dataclasses import dataclass

from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.promise import full_stage
from bloomstore.families.stage import FullBy
from bloomstore.layout.contract import Geometry
from bloomstore.theory import sharing
from bloomstore.theory.scalable import compound_error

MOST_STAGES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthStep:
    """One stage, and the whole filter when it is full."""

    stage: int
    geometry: Geometry
    stage_keys: int
    stage_error: float
    keys: int
    bits: int
    vector_bytes: int
    error: float
    lines: int

    @property
    def bits_per_key(self) -> float:
        """Bits of the whole filter over its keys."""
        return self.bits / self.keys


def plan_growth(spec: FilterSpec, keys: int) -> list[GrowthStep]:
    """The stages that hold `keys` keys; a family that does not grow has one.

    Arrival rates are taken as steady: those of keys to come cannot be known. Raises SpecError if
    this many keys would need more than 10,000 stages.
    """
    steps: list[GrowthStep] = []
    rates: list[float] = []
    held = bits = vector_bytes = lines = 0
    error, chain = 0.0, sharing.Chain()
    while held < keys:
        if len(steps) == MOST_STAGES:
            raise SpecError(f"{keys} keys need more than {MOST_STAGES} stages")
        stage = spec.stage(len(steps), rates)
        if stage is None:
            break
        geometry = stage.geometry
        stage_keys = spec.keys_when_full(stage)
        stage_error = geometry.error_with(stage_keys)
        if stage.full_by is FullBy.KEYS:
            error = chain.then(full_stage(stage))
        else:
            error = compound_error([error, stage_error])
        rates.append(1.0)
        held += stage_keys
        bits += geometry.vector_bits
        vector_bytes += geometry.vector_bytes
        lines += geometry.lines_touched
        steps.append(
            GrowthStep(
                stage=len(steps),
                geometry=geometry,
                stage_keys=stage_keys,
                stage_error=stage_error,
                keys=held,
                bits=bits,
                vector_bytes=vector_bytes,
                error=error,
                lines=lines,
            )
        )
    return steps
