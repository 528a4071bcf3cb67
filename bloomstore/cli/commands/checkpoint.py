"""`bloomstore checkpoint STORE`: write all bits to their segments and empty the journal.

A store does this by itself, when its journal is long and when it is closed; asked for, it makes
the next opening quick and a copy of the folder complete. Exit status: 0 done, 2 an error.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import plural

HELP = "write all bits to their segments and empty the journal"
EXAMPLES = """\
  bloomstore checkpoint filters/
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Makes a checkpoint and prints how long the journal was."""
    with bloomstore.open(args.store, create=False) as store:
        names = list(store)
        rows = sum(store[name].stats().journal_rows for name in names)
        store.checkpoint()
    if args.json:
        print_json({"filters": len(names), "journal_rows": rows}, out)
    else:
        done = f"{plural(len(names), 'filter')}, {plural(rows, 'journal row')}"
        print(f"checkpoint of {done}", file=out)
    return 0
