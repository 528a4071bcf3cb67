"""`bloomstore create STORE NAME`: make a new, empty filter, and the store if it is missing.

Refuses a name that exists. Exit status: 0 made, 2 refused.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_name, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.family_options import add_family_options, spec_from_options
from bloomstore.cli.support.numbers import size

HELP = "make a new, empty filter, and the store if it is missing"
EXAMPLES = """\
  bloomstore create filters/ users
  bloomstore create filters/ seen-urls --target-error 0.1% --capacity 1M --tightening 0.9
  bloomstore create filters/ words --fixed --capacity 235_000 --target-error 1e-4
  bloomstore create filters/ today --dynamic --capacity 50k --durability process
  bloomstore create filters/ flows --flexible --baseline-bits 1Mi --hashes 6 --error 1e-3 \\
      --speeds 1,2,3
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    add_family_options(parser)
    parser.add_argument(
        "--durability",
        choices=("commit", "process"),
        default="commit",
        help="what an added key survives: everything (default), or the end of the process only",
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Makes the filter and prints what it is."""
    spec = spec_from_options(args)
    with bloomstore.open(args.store) as store:
        stats = store.create(args.name, spec, durability=args.durability).stats()
    if args.json:
        spec_document = stats.spec.to_dict()
        document = {"filter": args.name, "spec": spec_document, "durability": stats.durability}
        print_json(document | {"file_bytes": stats.file_bytes}, out)
    else:
        vector, bytes_taken = stats.stages[0].geometry, size(stats.file_bytes)
        print(f"created {args.name}: {spec.family}, {vector}, {bytes_taken}", file=out)
    return 0
