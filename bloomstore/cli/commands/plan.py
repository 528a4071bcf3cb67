"""`bloomstore plan`: the size, the hashes and the cost of a filter as it grows. Needs no store.

One row per layout to compare them, then one row per stage of the chosen one.
Exit status: 0 printed, 2 arguments that make no sense.
"""

from __future__ import annotations

import collections.abc as abc
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, TextIO

from bloomstore import FilterSpec, Fixed, GrowthStep, plan_growth
from bloomstore.cli.support.arguments import UsageError, add_json, real_number
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.family_options import add_family_options, spec_from_options
from bloomstore.cli.support.numbers import error, ratio, rough_count, size
from bloomstore.cli.support.tables import Column, print_table

HELP = "compute the size, the hashes and the cost of a filter as it grows; needs no store"
EXAMPLES = """\
  bloomstore plan --capacity 1e6 --target-error 0.001
  bloomstore plan --capacity 10k --target-error 1% --grow 1000 --tightening 0.9
  bloomstore plan --fixed --capacity 10M --layout sliced
  bloomstore plan --flexible --baseline-bits 1Mi --hashes 7 --error 1e-3 --speeds 1,2,3,4
  bloomstore plan --capacity 1M --target-error 0.001 --plot plan.png
"""

DEFAULT_GROW = 100.0
# A table longer than a screen shows its beginning and its end.
MOST_ROWS, LAST_ROWS = 24, 4

LAYOUT_COLUMNS = (
    Column("layout", is_text=True),
    Column("first\nvector", is_text=True, may_wrap=True),
    Column("hashes"),
    Column("bits/\nkey"),
    Column("stages"),
    Column("grown\nsize"),
    Column("bits/\nkey"),
    Column("error"),
    Column("lines"),
)
STAGE_COLUMNS = (
    Column("stage"),
    Column("vector", is_text=True, may_wrap=True),
    Column("hashes"),
    Column("stage\nerror"),
    Column("all\nkeys"),
    Column("all\nsize"),
    Column("bits/\nkey"),
    Column("whole\nerror"),
    Column("lines"),
)
NOTE = """\
vector: bits of a slice; blocked and plain vectors have one slice
all, bits/key, whole error: of the filter when that stage is full
lines: cache lines one lookup touches at most; page faults, if not in memory"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_family_options(parser)
    parser.add_argument(
        "--grow",
        type=real_number,
        metavar="TIMES",
        help=f"plan up to this many times the capacity (default {DEFAULT_GROW:g})",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw bits per key and error over keys (needs bloomstore[plot])",
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Prints the plan, and draws it if asked to."""
    spec = spec_from_options(args)
    keys = _keys_wanted(spec, args.grow)
    chains = {name: plan_growth(other, keys) for name, other in spec.layouts().items()}
    chosen = spec.layout_name
    if args.plot is not None:
        from bloomstore.cli.support.plot import draw

        draw(chains, chosen, spec.target_error, args.plot)
    if args.json:
        print_json(_document(spec, chosen, chains), out)
        return 0
    steps = chains[chosen]
    print(f"{spec.family} filter, up to {rough_count(steps[-1].keys)} keys, by layout:", file=out)
    print_table(LAYOUT_COLUMNS, [_layout_row(*item, chosen) for item in chains.items()], out)
    print("\n* chosen; its stages:", file=out)
    print_table(STAGE_COLUMNS, _stage_rows(steps), out)
    print(f"\n{NOTE}", file=out)
    for line in _remarks(spec, steps):
        print(line, file=out)
    if args.plot is not None:
        print(f"drawn: {args.plot}", file=out)
    return 0


def _keys_wanted(spec: FilterSpec, times: float | None) -> int:
    if not spec.grows:
        if times is not None:
            raise UsageError(f"--grow: a {spec.family} filter does not grow")
        return spec.first_capacity
    times = DEFAULT_GROW if times is None else times
    if not 1.0 <= times <= 1e12:
        raise UsageError(f"--grow must be in 1..1e12, got {times:g}")
    return round(spec.first_capacity * times)


def _layout_row(layout: str, steps: abc.Sequence[GrowthStep], chosen: str) -> list[str]:
    first, last = steps[0], steps[-1]
    return [
        f"{layout} *" if layout == chosen else layout,
        _shape(first),
        str(first.geometry.hashes),
        ratio(first.bits_per_key),
        str(len(steps)),
        size(last.vector_bytes),
        ratio(last.bits_per_key),
        error(last.error),
        str(last.lines),
    ]


def _stage_rows(steps: abc.Sequence[GrowthStep]) -> list[list[str]]:
    if len(steps) <= MOST_ROWS:
        return [_stage_row(step) for step in steps]
    gap = ["..."] + [""] * (len(STAGE_COLUMNS) - 1)
    first = [_stage_row(step) for step in steps[: MOST_ROWS - LAST_ROWS - 1]]
    return [*first, gap, *(_stage_row(step) for step in steps[-LAST_ROWS:])]


def _stage_row(step: GrowthStep) -> list[str]:
    return [
        str(step.stage),
        _shape(step),
        str(step.geometry.hashes),
        error(step.stage_error),
        rough_count(step.keys),
        size(step.vector_bytes),
        ratio(step.bits_per_key),
        error(step.error),
        str(step.lines),
    ]


def _shape(step: GrowthStep) -> str:
    geometry = step.geometry
    bits = rough_count(geometry.slice_bits)
    return f"{geometry.slices} x {bits}" if geometry.slices > 1 else bits


def _remarks(spec: FilterSpec, steps: abc.Sequence[GrowthStep]) -> abc.Iterator[str]:
    last = steps[-1]
    if spec.follows_rates:
        yield "by rate: planned for keys that arrive as fast as in the first stage"
    if spec.grows and spec.can_be_sized:
        ahead = Fixed(
            capacity=last.keys,
            target_error=spec.target_error,
            layout=spec.layout_name,
            scheme=spec.scheme,
        )
        one = plan_growth(ahead, last.keys)[0]
        yield (
            f"one fixed vector, if all {rough_count(last.keys)} keys were known ahead:"
            f" {size(one.vector_bytes)}, {ratio(one.bits_per_key)} bits/key"
        )


def _document(
    spec: FilterSpec, chosen: str, chains: abc.Mapping[str, abc.Sequence[GrowthStep]]
) -> dict[str, Any]:
    return {
        "spec": spec.to_dict(),
        "layout": chosen,
        "layouts": {name: _step_document(steps[-1]) for name, steps in chains.items()},
        "stages": [_step_document(step) for step in chains[chosen]],
    }


def _step_document(step: GrowthStep) -> dict[str, Any]:
    geometry = step.geometry
    return {
        "stage": step.stage,
        "slices": geometry.slices,
        "slice_bits": geometry.slice_bits,
        "hashes": geometry.hashes,
        "stage_keys": step.stage_keys,
        "stage_error": step.stage_error,
        "keys": step.keys,
        "bits": step.bits,
        "bits_per_key": step.bits_per_key,
        "vector_bytes": step.vector_bytes,
        "error": step.error,
        "lines": step.lines,
    }
