"""`bloomstore db ACTION URL`: the tables that guards keep in a guarded database.

    upgrade     makes them, or brings them to a later revision
    downgrade   takes them away; every guard answers UNKNOWN until it is built again
    current     prints the revision, or that your own Alembic has made the tables
    check       says whether tables, registry, outboxes and triggers are as the guards need them

Exit status: 0 done, all is well; 1 `check` found problems or `current` is not the newest; 2 an
error.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

from bloomstore.cli.support.arguments import add_json
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.numbers import count
from bloomstore.errors import SpecError

HELP = "make, remove and check the tables that guards keep in a database"
EXAMPLES = """\
  bloomstore db upgrade sqlite:///app.db
  bloomstore db upgrade sqlite:///app.db --sql
  bloomstore db current sqlite:///app.db --json
  bloomstore db check sqlite:///app.db
  bloomstore db downgrade sqlite:///app.db --to base
"""
ACTIONS = ("upgrade", "downgrade", "current", "check")


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("url", metavar="URL", help="of the database, as SQLAlchemy takes it")
    parser.add_argument(
        "--to", metavar="REVISION", help="upgrade or downgrade to this one (head, or base)"
    )
    parser.add_argument(
        "--sql", action="store_true", help="print the SQL of an upgrade or downgrade, run nothing"
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Runs one of the four actions."""
    from bloomstore.sql.schema import migrate

    moves = args.action in ("upgrade", "downgrade")
    if (args.to or args.sql) and not moves:
        raise SpecError(f"--to and --sql are for upgrade and downgrade, not for {args.action}")
    if args.action == "check":
        return _check(args, out)
    to = args.to or {"upgrade": "head", "downgrade": "base"}.get(args.action, "")
    if args.sql:
        print(migrate.statements(args.url, args.action, to), end="", file=out)
        return 0
    if args.action == "upgrade":
        migrate.upgrade(args.url, to)
    elif args.action == "downgrade":
        migrate.downgrade(args.url, to)
    revision, newest = migrate.current(args.url)
    elsewhere = revision is None and migrate.is_elsewhere(args.url)
    if args.json:
        print_json({"revision": revision, "newest": newest, "elsewhere": elsewhere}, out)
    elif elsewhere:
        print(f"made by your own Alembic, newest {newest}", file=out)
    else:
        rest = "" if revision == newest else f", newest {newest}"
        print(f"{revision or 'no revision'}{rest}", file=out)
    return 1 if not moves and not elsewhere and revision != newest else 0


def _check(args: Namespace, out: TextIO) -> int:
    from bloomstore.sql.schema import migrate

    problems = list(migrate.check(args.url))
    if args.json:
        print_json({"sound": not problems, "problems": problems}, out)
    else:
        for problem in problems:
            print(problem, file=out)
        print(f"problems: {count(len(problems))}" if problems else "sound", file=out)
    return 1 if problems else 0
