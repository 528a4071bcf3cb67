"""`bloomstore query STORE NAME KEY ...`: which keys may have been added, and which certainly not.

One line per key, "maybe" or "absent", a tab, the key; or, like grep, only the keys of one kind.
Changes nothing.
Exit status, like grep's: 0 at least one key may be in the filter, 1 every key is absent, 2 error.
"""

from __future__ import annotations

import collections.abc as abc
import sys
from argparse import ArgumentParser, Namespace
from typing import TextIO

import bloomstore
from bloomstore import Filter
from bloomstore.cli.support.arguments import add_json, add_name, add_store
from bloomstore.cli.support.documents import print_json
from bloomstore.cli.support.inputs import (
    add_key_options,
    input_bytes,
    read_pieces,
    refuse_filter_of_guard,
    require_keys,
)
from bloomstore.cli.support.progress import Progress
from bloomstore.keys.lines import Piece

HELP = "say of each key whether it is certainly absent"
EXAMPLES = """\
  bloomstore query filters/ seen alice
  bloomstore query filters/ seen --from keys.txt --absent > new-keys.txt
  bloomstore query filters/ seen -q alice && echo "alice may be there"
  bloomstore query filters/ seen --from keys.txt --count
  bloomstore query filters/ seen alice nobody --json
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_store(parser)
    add_name(parser)
    add_key_options(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--maybe", action="store_true", help="print only keys that may be there")
    kind.add_argument("--absent", action="store_true", help="print only keys that are not there")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-q", "--quiet", action="store_true", help="print nothing, only the status")
    form.add_argument("--count", action="store_true", help="print how many keys of each kind")
    add_json(parser, "print a JSON object per key, or with --count one for all")


def run(args: Namespace, out: TextIO) -> int:
    """Asks for every key, prints the answers, and returns a status like grep's."""
    require_keys(args)
    maybes = 0
    is_talking = not (args.quiet or args.count)
    is_bar_wanted = not (is_talking and out.isatty())
    with bloomstore.open(args.store, read_only=True) as store:
        filter_ = store[args.name]
        refuse_filter_of_guard(store, args.name)
        _warn_of_doubt(filter_)
        with Progress(input_bytes(args), is_wanted=is_bar_wanted) as progress:
            for piece in read_pieces(args):
                answers = _ask(filter_, piece)
                maybes += sum(answers)
                progress.advance(len(answers), piece.input_bytes)
                if is_talking:
                    _print_answers(piece, answers, args, out)
                elif args.quiet and maybes:
                    return 0
    if args.count:
        _print_counts(maybes, progress.keys - maybes, args, out)
    return 0 if maybes else 1


def _ask(filter_: Filter, piece: Piece) -> list[bool]:
    answers: list[bool] = filter_.may_contain_many(piece.keys).tolist()
    return answers


def _print_answers(piece: Piece, answers: list[bool], args: Namespace, out: TextIO) -> None:
    end = "\0" if args.null else "\n"
    wanted = _wanted(args)
    for text, maybe in zip(piece.texts, answers, strict=True):
        if maybe not in wanted:
            continue
        if args.json:
            print_json({"key": text, "answer": _word(maybe)}, out, indent=None)
        elif len(wanted) == 1:
            print(text, end=end, file=out)
        else:
            print(f"{_word(maybe)}\t{text}", end=end, file=out)
    out.flush()  # a program that sends keys through a pipe waits for these answers


def _print_counts(maybes: int, absents: int, args: Namespace, out: TextIO) -> None:
    counts = {True: maybes, False: absents}
    wanted = _wanted(args)
    if args.json:
        print_json({_word(kind): counts[kind] for kind in wanted}, out, indent=None)
    elif len(wanted) == 1:
        print(counts[wanted[0]], file=out)
    else:
        for kind in wanted:
            print(f"{_word(kind)}\t{counts[kind]}", file=out)


def _wanted(args: Namespace) -> abc.Sequence[bool]:
    if args.maybe:
        return (True,)
    return (False,) if args.absent else (True, False)


def _word(maybe: bool) -> str:
    return "maybe" if maybe else "absent"


def _warn_of_doubt(filter_: Filter) -> None:
    """Warns if a filter is not sound: its "maybe" to everything would look like a full filter."""
    state = filter_.state
    if not state.is_sound:
        print(f"bloomstore: warning: filter {filter_.name!r} is {state}", file=sys.stderr)
