"""Print what growing costs: bits per key of scalable filters over a growth of 1000 times.

    python -m tools.compare.growth [--target-error 0.01] [--json]

One row per layout, growth (size of a stage over the one before) and tightening (its error over
that of the one before). Stage i holds initial capacity * growth^i keys and is sized by the
formulas, without a margin; no filter is made. A stage exists from the first key on that it takes,
so bits per key are a saw: least when the last stage is full, most when a new one was just added.

    10x 100x 1000x   bits per key when the set is that many times the initial capacity
    worst, mean      over all sizes from 1x to 1000x; the mean gives each factor equal weight
    full             when the last stage, the first that reaches 1000x, is full
    hashes           of the last stage

Writes nothing but the table. Exit status: 0, or 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from bloomstore.theory.scalable import first_error, stage_error, stage_hashes
from bloomstore.theory.sizing import size_blocked, size_sliced
from bloomstore.theory.vector import optimal_bits

GROWTHS = (1.25, 1.5, 2.0, 4.0)
TIGHTENINGS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
LAST_SIZE = 1000.0
# Large enough that rounding to whole bits and blocks is invisible.
INITIAL_CAPACITY = 1_000_000

HEADING = (
    "layout   growth  tightening     10x    100x   1000x   worst    mean    full  stages  hashes"
)


class Row(NamedTuple):
    """Bits per key of one layout, growth and tightening."""

    layout: str
    growth: float
    tightening: float
    at_10x: float
    at_100x: float
    at_1000x: float
    worst: float
    mean: float
    full: float
    stages: int
    hashes: int


class Stage(NamedTuple):
    """Sums over the chain up to a stage: keys in units of the initial capacity, bits per unit."""

    keys: float
    bits: float
    hashes: int


def size_sliced_stage(keys: int, target_error: float) -> tuple[int, int]:
    """Return vector bits and hashes of a sliced stage, with the hashes of the SBF paper."""
    size = size_sliced(keys, target_error, hashes=stage_hashes(target_error), margin=0.0)
    return size.slice_bits * size.hashes, size.hashes


def size_blocked_stage(keys: int, target_error: float) -> tuple[int, int]:
    """Return vector bits and hashes of a blocked stage."""
    size = size_blocked(keys, target_error, margin=0.0)
    return size.slice_bits, size.hashes


LAYOUTS: dict[str, Callable[[int, float], tuple[int, int]]] = {
    "sliced": size_sliced_stage,
    "blocked": size_blocked_stage,
}


def chain(layout: str, target_error: float, growth: float, tightening: float) -> list[Stage]:
    """Return the stages up to the first that reaches the last size."""
    stages: list[Stage] = []
    keys = bits = 0.0
    while keys < LAST_SIZE:
        error = stage_error(first_error(target_error, tightening), tightening, len(stages))
        capacity = math.ceil(INITIAL_CAPACITY * growth ** len(stages))
        vector_bits, hashes = LAYOUTS[layout](capacity, error)
        keys += capacity / INITIAL_CAPACITY
        bits += vector_bits / INITIAL_CAPACITY
        stages.append(Stage(keys, bits, hashes))
    return stages


def bits_per_key(stages: Sequence[Stage], size: float) -> float:
    """Return the bits per key when the set is `size` times the initial capacity."""
    return next(stage.bits for stage in stages if stage.keys >= size * (1.0 - 1e-9)) / size


def measure(layout: str, target_error: float, growth: float, tightening: float) -> Row:
    """Return one row of the table."""
    stages = chain(layout, target_error, growth, tightening)
    worst = stages[0].bits
    area = 0.0  # of bits per key over the logarithm of the size
    for before, stage in pairwise(stages):
        worst = max(worst, stage.bits / before.keys)
        area += stage.bits * (1.0 / before.keys - 1.0 / min(stage.keys, LAST_SIZE))
    return Row(
        layout=layout,
        growth=growth,
        tightening=tightening,
        at_10x=bits_per_key(stages, 10.0),
        at_100x=bits_per_key(stages, 100.0),
        at_1000x=bits_per_key(stages, LAST_SIZE),
        worst=worst,
        mean=area / math.log(LAST_SIZE),
        full=stages[-1].bits / stages[-1].keys,
        stages=len(stages),
        hashes=stages[-1].hashes,
    )


def compare(target_error: float) -> list[Row]:
    """Return all rows, grouped by layout and growth."""
    return [
        measure(layout, target_error, growth, tightening)
        for layout in LAYOUTS
        for growth in GROWTHS
        for tightening in TIGHTENINGS
    ]


def best_tightenings(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return, for each layout and growth, the rows of least mean and of least space when full."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.layout, row.growth), []).append(row)
    return [
        (min(group, key=lambda row: row.mean), min(group, key=lambda row: row.full))
        for group in groups.values()
    ]


def table(rows: Sequence[Row], target_error: float) -> str:
    """Return the aligned table and, under it, the best tightening of each growth."""
    static = {name: LAYOUTS[name](INITIAL_CAPACITY, target_error)[0] for name in LAYOUTS}
    lines = [
        f"target error {target_error:g}; a vector sized in advance:"
        f" {optimal_bits(1, target_error):.2f} bits/key ideal, "
        + ", ".join(f"{bits / INITIAL_CAPACITY:.2f} {name}" for name, bits in static.items()),
        "",
        HEADING,
    ]
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        lines.append(
            f"{row.layout:<8} {row.growth:>6.2f} {row.tightening:>11.2f} {row.at_10x:>7.2f}"
            f" {row.at_100x:>7.2f} {row.at_1000x:>7.2f} {row.worst:>7.2f} {row.mean:>7.2f}"
            f" {row.full:>7.2f} {row.stages:>7d} {row.hashes:>7d}"
        )
        if following is None or following.growth != row.growth:
            lines.append("")
    lines.append("best tightening per growth, by the mean (and by the space when full):")
    for by_mean, by_full in best_tightenings(rows):
        lines.append(
            f"  {by_mean.layout:<8} {by_mean.growth:.2f}: {by_mean.tightening:.2f}"
            f" with {by_mean.mean:.2f} bits/key ({by_full.tightening:.2f} with {by_full.full:.2f})"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description="bits per key of growing filters, by formula")
    parser.add_argument("--target-error", type=float, default=1e-2, help="of the whole filter")
    parser.add_argument("--json", action="store_true", help="print the rows as a JSON array")
    options = parser.parse_args(arguments)
    if not 0.0 < options.target_error < 1.0:
        parser.error(f"--target-error must be in (0, 1), got {options.target_error}")
    rows = compare(options.target_error)
    if options.json:
        json.dump([row._asdict() for row in rows], sys.stdout, indent=1)
        print()
    else:
        print(table(rows, options.target_error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
