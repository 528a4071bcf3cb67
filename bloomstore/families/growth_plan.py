"""What a filter will cost as it grows: its chain of stages, computed and not made.

In: a spec and a number of keys, out: Steps, one per stage, until that many keys fit. Each step
tells what the whole filter is like at the moment its stage is full.

    lines   cache lines that one lookup touches at most, over all stages; when the filter is larger
            than memory, each of them may be a page fault. `hashes` per plain or sliced vector, one
            per blocked vector. An absent key stops at the first unset bit, so it touches fewer.

Errors are expectations from theory/; of the chains of Dynamic and Flexible they are upper bounds.
Not here: tables (plan.py), pictures (plot.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bloomstore import Dynamic, Fixed, Flexible
from bloomstore.cli.support.arguments import UsageError
from bloomstore.families.family import FilterSpec, resolved
from bloomstore.families.promise import full_stage
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import Geometry, SchemeCode
from bloomstore.layout.layouts import BY_NAME, SCHEMES
from bloomstore.theory import sharing
from bloomstore.theory.scalable import compound_error

MOST_STAGES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
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
        """Of the whole filter."""
        return self.bits / self.keys


def grow(spec: FilterSpec, keys: int) -> list[Step]:
    """The stages that hold `keys` keys; a family that does not grow has one."""
    steps: list[Step] = []
    stage: StageSpec | None = None
    held = bits = vector_bytes = lines = 0
    error, chain = 0.0, sharing.Chain()
    while held < keys:
        if len(steps) == MOST_STAGES:
            raise UsageError(f"{keys} keys need more than {MOST_STAGES} stages")
        stage = _next(spec, len(steps), stage)
        if stage is None:
            break
        geometry = stage.geometry
        stage_keys = _keys_when_full(spec, stage)
        stage_error = geometry.error_with(stage_keys)
        if stage.full_by is FullBy.KEYS:
            error = chain.then(full_stage(stage))
        else:
            error = compound_error([error, stage_error])
        held += stage_keys
        bits += geometry.vector_bits
        vector_bytes += geometry.vector_bytes
        lines += geometry.lines_touched
        steps.append(
            Step(
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


def alternatives(spec: FilterSpec) -> dict[str, FilterSpec]:
    """The spec with every layout that it can have, and the chosen one among them."""
    if isinstance(spec, Flexible):
        return {"plain": spec}
    return {
        layout: replace(spec, layout=layout)  # type: ignore[arg-type]
        for layout, kind in BY_NAME.items()
        if SCHEMES[spec.scheme] in kind.schemes
    }


def layout_of(spec: FilterSpec) -> str:
    """The layout that the spec takes."""
    known = resolved(spec)
    return "plain" if isinstance(known, Flexible) else str(known.layout)


def _next(spec: FilterSpec, index: int, before: StageSpec | None) -> StageSpec | None:
    """The next stage. Rates are taken as steady: those of keys to come cannot be known."""
    if isinstance(spec, Dynamic) and before is not None:
        return before  # sizing a blocked vector takes milliseconds, and there may be thousands
    return spec.stage(index, [1.0] * index)


def _keys_when_full(spec: FilterSpec, stage: StageSpec) -> int:
    """Keys that make the stage full.

    Vectors of scheme H3 are rounded up to a power of two. A growing filter that is full by fill
    goes on filling such a vector; all others stop at the capacity.
    """
    geometry = stage.geometry
    if (
        isinstance(spec, Fixed)
        or stage.full_by is FullBy.KEYS
        or geometry.scheme is not SchemeCode.H3
    ):
        return stage.capacity
    return max(stage.capacity, int(geometry.keys_at_fill(stage.fill_limit)))
