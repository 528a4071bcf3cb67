"""Keys from arguments, files and standard input, in pieces of bounded size.

In: the options of add_key_options, out: Pieces of keys/lines.py, which says what a line
is.
"""

from __future__ import annotations

import collections.abc as abc
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from stat import S_ISREG
from typing import cast

from bloomstore import Store
from bloomstore.cli.support.arguments import UsageError
from bloomstore.keys import lines as text_lines
from bloomstore.keys.lines import PARSERS, Piece, Readable, parse_lines, stream_pieces
from bloomstore.store.note_names import has_guard


def add_key_options(parser: ArgumentParser) -> None:
    """KEY arguments, --from, --type and --null."""
    parser.add_argument("keys", nargs="*", metavar="KEY", help="a key; none: standard input")
    parser.add_argument(
        "--from",
        dest="sources",
        action="append",
        metavar="FILE",
        help="read keys from this file, one per line (LF or CRLF, an empty line is the empty key);"
        " - is standard input; may be repeated",
    )
    parser.add_argument(
        "--type",
        dest="key_type",
        choices=tuple(PARSERS),
        default="str",
        help="what a key is: a UTF-8 text (default), a number, or bytes written in hex",
    )
    parser.add_argument(
        "--null", action="store_true", help="keys in files end with NUL instead of a newline"
    )


def refuse_filter_of_guard(store: Store, name: str) -> None:
    """Raises UsageError for the filter of a guard, whose keys nobody can type.

    The guard makes them from the values of a row, in a form of its own: another form of the same
    value is another key, and "absent" would be wrong for it.
    """
    if has_guard(store.notes, name):
        raise UsageError(
            f"{name!r} is the filter of a guard, which makes its keys from the rows of a table:"
            " ask with plugin.probe(...), add by writing rows, refill it with `bloomstore rebuild`"
        )


def read_pieces(args: Namespace) -> abc.Iterator[Piece]:
    """The keys of all arguments, then of all files. Raises BadKey, OSError."""
    if args.keys:
        yield from _argument_pieces(args.keys, args.key_type)
    for source in _sources(args):
        with ExitStack() as stack:
            stream: Readable
            if source == "-":
                stream, name = cast("Readable", sys.stdin.buffer), "standard input"
            else:
                stream, name = stack.enter_context(Path(source).open("rb")), source
            yield from stream_pieces(stream, name, b"\0" if args.null else b"\n", args.key_type)


def input_bytes(args: Namespace) -> int | None:
    """Bytes of all files together; None when one of them has no size."""
    total = 0
    for source in _sources(args):
        try:
            status = Path("/dev/stdin" if source == "-" else source).stat()
        except OSError:
            return None
        if not S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def require_keys(args: Namespace) -> None:
    """Refuses to wait for keys at a terminal unless typing them was asked for."""
    if not args.keys and not args.sources and sys.stdin.isatty():
        raise UsageError("no keys: give KEY arguments, --from FILE, or --from - to type them")


def _sources(args: Namespace) -> list[str]:
    if args.sources:
        return list(args.sources)
    return [] if args.keys else ["-"]


def _argument_pieces(texts: list[str], key_type: str) -> abc.Iterator[Piece]:
    lines = [word.encode("utf-8", "surrogateescape") for word in texts]
    for start in range(0, len(lines), text_lines.PIECE_KEYS):
        some = lines[start : start + text_lines.PIECE_KEYS]
        yield from parse_lines(some, key_type, "argument", start + 1, 0)
