"""`bloomstore backup STORE FOLDER`: a consistent copy of a store, also while it is in use.

The copy is a store of its own with everything that was acknowledged before the command began.
Exit status: 0 done, 2 an error; then the folder is not a store.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count, plural

HELP = "copy a store into a new folder while it is in use"
EXAMPLES = """\
  bloomstore backup filters/ saved/
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new or empty folder")
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Copies the store and prints how much it was."""
    with bloomstore.open(args.store, create=False) as store:
        store.backup(args.folder)
        filters = len(store)
    files = [path for path in args.folder.rglob("*") if path.is_file()]
    copied = sum(path.stat().st_size for path in files)
    if args.json:
        print_json({"filters": filters, "files": len(files), "bytes": copied}, out)
    else:
        print(f"copied {plural(filters, 'filter')}, {count(copied)} bytes", file=out)
    return 0
