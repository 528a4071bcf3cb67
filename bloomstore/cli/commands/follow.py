"""`bloomstore follow URL STORE`: bring keys from the outboxes of a database into its guards.

One pass after the other until it is interrupted; with --once a single one. Keys are durable in the
filter before they leave an outbox, so it may be killed at any moment. On PostgreSQL any number of
stores may follow a database; elsewhere one has each outbox.
Exit status: 0 done, 1 after --once if a guard was left alone, 2 an error, 130 interrupted.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, TextIO

import bloomstore
from bloomstore.cli.support.arguments import add_json, add_store, real_number, whole_number
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count, plural
from bloomstore.cli.support.progress import Progress
from bloomstore.errors import SpecError

if TYPE_CHECKING:
    from bloomstore.sql.outbox.follower import Follower, Pass

HELP = "bring keys from the outboxes of a database into the guards of a store"
EXAMPLES = """\
  bloomstore follow sqlite:///app.db filters/ --once
  bloomstore follow sqlite:///app.db filters/ --once --json
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("url", metavar="URL", help="of the database, as SQLAlchemy takes it")
    add_store(parser)
    parser.add_argument("--once", action="store_true", help="one pass, then end")
    parser.add_argument(
        "--every",
        type=real_number,
        default=0.5,
        metavar="SECONDS",
        help="from the end of a pass to the next (0.5)",
    )
    parser.add_argument(
        "--keep",
        type=whole_number,
        metavar="TRANSACTIONS",
        help="PostgreSQL: keys of so many stay in the outbox for other stores (1e6)",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="elsewhere: follow instead of another store; build the guards afterwards",
    )
    add_json(parser, "print JSON, with --once")


def run(args: Namespace, out: TextIO) -> int:
    """Follows until it is told to stop."""
    from bloomstore.sql.outbox.follower import KEEP, Follower
    from bloomstore.sql.schema.connect import connected

    if args.every <= 0:
        raise SpecError(f"--every is a number of seconds above 0, got {args.every:g}")
    if args.json and not args.once:
        raise SpecError("--json is for --once: a follower that never ends has no result to print")
    keep = KEEP if args.keep is None else args.keep
    with bloomstore.open(args.store, create=False) as store, connected(args.url) as engine:
        follower = Follower(engine, store, keep=keep, takes_over=args.take_over)
        if args.once:
            return _print(follower.run_once(), args, out)
        with Progress(None) as progress:
            try:
                _go_on(follower, args, progress, out)
            except KeyboardInterrupt:
                followed = plural(progress.keys, "key")
                raise KeyboardInterrupt(f"stopped, {followed} followed") from None
    return 0


def _go_on(follower: Follower, args: Namespace, progress: Progress, out: TextIO) -> None:
    """Makes one pass after the other, and prints why a guard is not followed when that changes.

    A database that cannot be reached may come back, so it is reported and tried again.
    """
    from bloomstore.errors import DatabaseError
    from bloomstore.sql.schema.connect import database_errors

    printed: dict[str, str] = {}

    def say(name: str, doubt: str) -> None:
        if doubt != printed.get(name):
            print(f"{name}: {doubt or 'followed'}", file=out, flush=True)
            printed[name] = doubt

    while True:
        try:
            with database_errors(args.url):
                passes = follower.run_once()
        except DatabaseError as error:
            say("database", str(error))
        else:
            printed.pop("database", None)
            for done in passes:
                progress.advance(done.keys, 0)
                say(done.name, done.doubt)
        time.sleep(args.every)


def _print(passes: list[Pass], args: Namespace, out: TextIO) -> int:
    if args.json:
        documents = [
            {"guard": done.name, "keys": done.keys, "purged": done.purged, "doubt": done.doubt}
            for done in passes
        ]
        print_json({"passes": documents}, out)
    else:
        for done in passes:
            outcome = done.doubt or f"{plural(done.keys, 'key')}, {count(done.purged)} purged"
            print(f"{done.name}: {outcome}", file=out)
        if not passes:
            print("no guard of this database has an outbox", file=out)
    return 1 if any(done.doubt for done in passes) else 0
