"""`bloomstore add STORE NAME KEY ...`: add keys from arguments, files or standard input.

Keys are added piece by piece as they are read, each piece durable by itself: keys that an error or
an interruption reports as added stay added, and adding them again does no harm.
Exit status: 0 all added, 2 an error (which says how many keys were added before it).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore import BloomStoreError, Filter, Scalable, Store
from bloomstore.cli.support.arguments import add_json, add_name, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.family_options import DEFAULT_ERROR
from bloomstore.cli.support.inputs import (
    add_key_options,
    input_bytes,
    read_pieces,
    refuse_filter_of_guard,
    require_keys,
)
from bloomstore.cli.support.numbers import count
from bloomstore.cli.support.progress import Progress
from bloomstore.errors import FilterExists, FilterFull

HELP = "add keys from arguments, files or standard input"
EXAMPLES = """\
  bloomstore add filters/ seen alice bob
  bloomstore add filters/ seen --from keys.txt
  seq 1 1000 | bloomstore add filters/ numbers --type int --create
  find . -print0 | bloomstore add filters/ seen --from - --null
  bloomstore add filters/ seen --type bytes-hex 00ff c0ffee --json
"""


class AddError(BloomStoreError):
    """Adding ended early. The message says how far it came."""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    add_key_options(parser)
    parser.add_argument(
        "--create",
        action="store_true",
        help=f"make a scalable filter of target error {DEFAULT_ERROR} if there is none",
    )
    add_json(parser)


def run(args: Namespace, out: TextIO) -> int:
    """Adds the keys and prints how many were new."""
    require_keys(args)
    with bloomstore.open(args.store, create=args.create) as store:
        refuse_filter_of_guard(store, args.name)
        target = _target(store, args.name, create=args.create)
        keys, new = _add(target, args)
    if args.json:
        print_json({"filter": args.name, "keys": keys, "new": new}, out)
    else:
        print(f"{count(new)} of {count(keys)} keys were new", file=out)
    return 0


def _target(store: Store, name: str, *, create: bool) -> Filter:
    if create and name not in store:
        try:
            return store.create(name, Scalable(target_error=DEFAULT_ERROR))
        except FilterExists:  # another process has just made it
            return store[name]
    return store[name]


def _add(target: Filter, args: Namespace) -> tuple[int, int]:
    """Keys that were read, and how many of them were new."""
    new = 0
    with Progress(input_bytes(args)) as progress:
        try:
            for piece in read_pieces(args):
                new += target.add_many(piece.keys)
                progress.advance(len(piece.keys), piece.input_bytes)
        except FilterFull as full:
            raise AddError(
                f"filter {full.name!r} is full: sized for {count(full.capacity)} keys and cannot"
                f" grow; {count(new + full.added)} new keys were added before"
            ) from full
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; {_done(progress.keys, new)}") from None
        except (BloomStoreError, OSError) as error:
            raise AddError(f"{_reason(error)}; {_done(progress.keys, new)}") from error
    return progress.keys, new


def _done(keys: int, new: int) -> str:
    return f"{count(keys)} keys were added before, {count(new)} of them new"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
