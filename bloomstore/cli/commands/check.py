"""`bloomstore check STORE`: read every file of a store and report all problems.

One line per problem, then a summary line. Changes nothing.
Exit status: 0 sound, 1 problems found, 2 the store could not be opened.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count

HELP = "verify every segment, the journal and the catalog"
EXAMPLES = """\
  bloomstore check filters/
  bloomstore check filters/ --filter seen
  bloomstore check filters/ --json
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    parser.add_argument("--filter", dest="name", metavar="NAME", help="check this filter only")
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Prints every problem, then how many there are."""
    problems = []
    with bloomstore.open(args.store, read_only=True) as store:
        for problem in store.check(only=args.name):
            problems.append(problem)
            if not args.json:
                print(problem, file=out, flush=True)
    if args.json:
        documents = [
            {
                "filter": problem.filter_name,
                "path": str(problem.path),
                "offset": problem.offset,
                "what": problem.what,
            }
            for problem in problems
        ]
        print_json({"sound": not documents, "problems": documents}, out)
    else:
        print(f"problems: {count(len(problems))}" if problems else "sound", file=out)
    return 1 if problems else 0
