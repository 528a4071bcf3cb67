"""`bloomstore drop STORE NAME`: remove a filter and its files, after asking.

A user at a terminal is asked; a script must pass --yes. The removal cannot be undone.
Exit status: 0 removed, 1 not confirmed, 2 an error.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import UsageError, add_name, add_store
from bloomstore.cli.support.numbers import count

HELP = "remove a filter and its files"
EXAMPLES = """\
  bloomstore drop filters/ seen --yes
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(args: Namespace, out: TextIO) -> int:
    """Removes the filter, if that is confirmed."""
    with bloomstore.open(args.store, create=False) as store:
        if not args.yes:
            keys = store[args.name].stats().keys
            if not sys.stdin.isatty():
                raise UsageError("not at a terminal: confirm with --yes")
            if not _is_confirmed(f"remove filter {args.name!r} and its {count(keys)} keys? [y/N] "):
                print("not removed", file=out)
                return 1
        store.drop(args.name)
    print(f"removed {args.name}", file=out)
    return 0


def _is_confirmed(question: str) -> bool:
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
