"""`bloomstore info STORE [NAME]`: all facts about a filter, or about every filter of a store.

The spec, the counts, the errors, the state, and every stage with its fill; whether a rebuild pays
(`bloomstore rebuild`), or was begun. Changes nothing.
Exit status: 0 printed, 2 an error.
"""

from __future__ import annotations

import collections.abc as abc
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import NamedTuple, TextIO

import bloomstore
from bloomstore import Estimate, FilterStats, StageStats, Store, kernels
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import filter_document, print_json
from bloomstore.cli.support.numbers import bar, count, error, plural, ratio, size
from bloomstore.cli.support.tables import Column, print_facts, print_table
from bloomstore.errors import DamagedRow
from bloomstore.rebuild import Advice, State, advise, read_state
from bloomstore.store.note_names import has_guard

HELP = "show everything known about a filter, or about all filters of a store"
EXAMPLES = """\
  bloomstore info filters/ seen
  bloomstore info filters/
  bloomstore info filters/ seen --json
"""
NO_COMPILED_KERNELS = (
    "warning: the compiled kernels are missing, so lookups and adds are many times slower;"
    " reinstall bloomstore with a C compiler at hand"
)

COLUMNS = (
    Column("stage"),
    Column("vector", is_text=True, may_wrap=True),
    Column("keys"),
    Column("fill"),
    Column("full", is_text=True),
    Column("target\nerror"),
    Column("error\nnow"),
)


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the filter (default: all)")
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Prints the store's facts and those of one or all filters."""
    with bloomstore.open(args.store, read_only=True) as store:
        names = list(store)
        looks = [_look(store, name) for name in (names if args.name is None else [args.name])]
    if args.json:
        _print_document(args, looks, out)
        return 0
    facts = [
        ("store", str(args.store)),
        ("filters", count(len(names))),
        ("kernels", kernels.BACKEND),
    ]
    print_facts(facts, out)
    if kernels.BACKEND != "compiled":
        print(NO_COMPILED_KERNELS, file=out)
    for look in looks:
        print(file=out)
        print_facts([*_facts(look.stats, look.distinct), *_rebuild_facts(look)], out)
        print(file=out)
        print_table(COLUMNS, [_stage_row(stage, out) for stage in look.stats.stages], out)
    return 0


class _Look(NamedTuple):
    """The facts about one filter."""

    stats: FilterStats
    distinct: Estimate
    advice: Advice | None
    begun: State | None


def _deleted_rows(store: Store, name: str) -> int:
    try:
        if not has_guard(store.notes, name):
            return 0
    except DamagedRow:
        return 0
    from bloomstore.sql.guards.record import deleted_rows  # SQLAlchemy only where guards are

    return deleted_rows(store, name)


def _look(store: Store, name: str) -> _Look:
    filter_ = store[name]
    stats, distinct = filter_.stats(), filter_.estimate_count()
    advice = advise(stats, distinct.value, _deleted_rows(store, name))
    return _Look(stats, distinct, advice, read_state(store, name))


def _print_document(args: Namespace, looks: list[_Look], out: TextIO) -> None:
    documents = [
        filter_document(look.stats)
        | {
            "estimate_count": asdict(look.distinct),
            "rebuild_pays": None if look.advice is None else asdict(look.advice),
            "rebuild_begun": None if look.begun is None else asdict(look.begun),
        }
        for look in looks
    ]
    print_json({"store": str(args.store), "kernels": kernels.BACKEND, "filters": documents}, out)


def _facts(stats: FilterStats, distinct: Estimate) -> abc.Iterator[tuple[str, str]]:
    spec = stats.spec.to_dict()
    yield "filter", stats.name
    yield "family", f"{spec.pop('family')} ({_parameters(spec)})"
    yield "durability", stats.durability
    yield "state", str(stats.state)
    yield "keys", f"{count(stats.keys)} were new when they were added"
    yield "estimate", f"{_estimate(distinct)} different keys"
    yield "target error", error(stats.target_error)
    yield "error now", error(stats.error_rate)
    sealed = sum(stage.sealed for stage in stats.stages)
    stages = plural(len(stats.stages), "stage") + (f", {sealed} of them sealed" if sealed else "")
    yield "size", f"{size(stats.file_bytes)} in {stages}"
    yield "bits", f"{count(stats.bits)}, fill {stats.fill:.1%}"
    yield "bits per key", ratio(stats.bits_per_key)
    yield "journal", f"{plural(stats.journal_rows, 'row')} since the last checkpoint"


def _rebuild_facts(look: _Look) -> abc.Iterator[tuple[str, str]]:
    if look.begun is not None:
        yield "rebuild", f"begun, {count(look.begun.rows)} rows read; writers add to both chains"
    if look.advice is not None:
        bits, probes, wrong = look.advice.bits, look.advice.probes, look.advice.error
        yield "rebuild pays", "; ".join(look.advice.reasons)
        yield "  bits", f"{count(bits[0])} -> {count(bits[1])}"
        yield "  miss asks", f"{probes[0]:.1f} -> {probes[1]:.1f} bits"
        yield "  error", f"{error(wrong[0])} -> {error(wrong[1])}"


def _parameters(spec: abc.Mapping[str, object]) -> str:
    parts = []
    for name, value in spec.items():
        if value is None:
            continue
        shown = value
        if isinstance(value, dict):
            shown = " ".join(f"{key} {part}" for key, part in value.items())
        parts.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(parts)


def _estimate(distinct: Estimate) -> str:
    numbers = (distinct.value, distinct.low, distinct.high)
    value, low, high = (f"{number:,.0f}" for number in numbers)
    mark = ", uncertain" if distinct.uncertain else ""
    return f"{value} ({low} .. {high} at {distinct.confidence:.0%}{mark})"


def _stage_row(stage: StageStats, out: TextIO) -> list[str]:
    # Full by fill or by keys: the family decides, and the larger share is the one that counts.
    share = max(stage.fill / stage.fill_limit, stage.keys / stage.capacity)
    return [
        str(stage.stage),
        stage.geometry.partition(" ")[2],  # the family's line names layout and scheme
        count(stage.keys),
        f"{stage.fill:.1%}",
        bar(1.0 if stage.sealed else share, out),
        error(stage.target_error),
        error(stage.error_rate),
    ]
