"""`bloomstore repair STORE`: repair damage without the keys, and name filters that need a rebuild.

Damaged blocks are set to ones (they answer "maybe", which raises the error until a rebuild), a
stage whose sync failed is written again, a restored catalog gets numbers above those of its files.
No key is ever lost by it. Exit status: 0 all is well now, 1 a filter needs a rebuild, 2 an
error.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count

HELP = "mend damage that does not need the source of the keys"
EXAMPLES = """\
  bloomstore repair filters/
  bloomstore repair filters/ --json
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Mends and prints a line for each thing that was done or could not be."""
    repairs = []
    with bloomstore.open(args.store, create=False) as store:
        for repair in store.repair():
            repairs.append(repair)
            if not args.json:
                print(repair, file=out, flush=True)
    left = sum(repair.needs_rebuild for repair in repairs)
    if args.json:
        done = [{"what": repair.what, "needs_rebuild": repair.needs_rebuild} for repair in repairs]
        print_json({"repairs": done}, out)
    elif not repairs:
        print("sound, nothing to repair", file=out)
    else:
        print(f"mended: {count(len(repairs) - left)}, need a rebuild: {count(left)}", file=out)
    return 1 if left else 0
