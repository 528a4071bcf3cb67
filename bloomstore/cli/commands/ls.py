"""`bloomstore ls STORE`: the filters of a store, one line each. Changes nothing.

Exit status: 0 all could be read, 1 some could not (their line says why), 2 the store could not.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore import BloomStoreError, FilterStats
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import filter_document, print_json
from bloomstore.cli.support.numbers import count, error, ratio, size
from bloomstore.cli.support.tables import Column, print_table

HELP = "list the filters of a store"
EXAMPLES = """\
  bloomstore ls filters/
  bloomstore ls filters/ --json
"""

MOST_STATE = 50

COLUMNS = (
    Column("name", is_text=True, may_wrap=True),
    Column("family", is_text=True),
    Column("keys"),
    Column("stages"),
    Column("size"),
    Column("bits/\nkey"),
    Column("target\nerror"),
    Column("error\nnow"),
    Column("state", is_text=True, may_wrap=True),
)


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Prints a table of all filters."""
    readable: list[FilterStats] = []
    unreadable: dict[str, str] = {}
    with bloomstore.open(args.store, read_only=True) as store:
        for name in store:
            try:
                readable.append(store[name].stats())
            except BloomStoreError as problem:
                unreadable[name] = str(problem)
    if args.json:
        documents = [filter_document(stats) for stats in readable]
        lost = [
            {"name": name, "state": "unreadable", "reason": why} for name, why in unreadable.items()
        ]
        print_json([*documents, *lost], out)
    elif not readable and not unreadable:
        print("no filters", file=out)
    else:
        rows = [_row(stats) for stats in readable]
        rows += [_lost_row(name, why) for name, why in unreadable.items()]
        print_table(COLUMNS, rows, out)
    return 1 if unreadable else 0


def _row(stats: FilterStats) -> list[str]:
    return [
        stats.name,
        stats.spec.family,
        count(stats.keys),
        count(len(stats.stages)),
        size(stats.file_bytes),
        ratio(stats.bits_per_key),
        error(stats.target_error),
        error(stats.error_rate),
        _shortened(str(stats.state)),
    ]


def _lost_row(name: str, why: str) -> list[str]:
    return [name, *["-"] * (len(COLUMNS) - 2), _shortened(f"unreadable: {why}")]


def _shortened(state: str) -> str:
    """A state with as much of its reason as fits a line; `info` has all of it."""
    return state if len(state) <= MOST_STATE else f"{state[: MOST_STATE - 3]}..."
