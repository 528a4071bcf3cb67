"""`bloomstore verify STORE NAME --from SOURCE`: keys of the source that the filter lacks.

Reads the source once and changes nothing. A missing key was written to the source without
being added to the filter: rebuild it.
Exit status: 0 none is missing, 1 some are (the first ones are named), 2 an error.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_name, add_store, whole_number
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count, error
from bloomstore.cli.support.progress import Progress
from bloomstore.cli.support.sources import add_source_options, source_from_options
from bloomstore.rebuild.verify import PROBES, verify

HELP = "ask a filter for every key of its source, and for absent ones"
EXAMPLES = """\
  bloomstore verify filters/ seen --from some.txt
  bloomstore verify filters/ seen --from some.csv --column email --probes 100k --json
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    add_source_options(parser)
    parser.add_argument(
        "--probes",
        type=whole_number,
        default=PROBES,
        metavar="N",
        help=f"absent keys to ask for (default {PROBES})",
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Prints the missing keys and the measured error."""
    with (
        bloomstore.open(args.store, read_only=True) as store,
        source_from_options(args, store) as source,
    ):
        with Progress(source.count(), unit="rows") as progress:
            result = verify(store, args.name, source, probes=args.probes, progress=progress.reach)
        target = store[args.name].stats().target_error
    if args.json:
        print_json(asdict(result) | {"observed_error": result.observed_error}, out)
        return 1 if result.missing else 0
    for key in result.first_missing:
        print(f"missing: {key!r}", file=out)
    print(f"{count(result.missing)} of {count(result.rows)} rows are missing", file=out)
    if result.probes:
        observed = f"{error(result.observed_error)}, {count(result.reported)} of"
        print(
            f"error {observed} {count(result.probes)} absent keys; target {error(target)}", file=out
        )
    return 1 if result.missing else 0
