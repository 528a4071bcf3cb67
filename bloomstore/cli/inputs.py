"""Keys from arguments, files and standard input, in pieces of bounded size.

In: the options of add_key_options, out: Pieces, each with its keys, how they were written, and how
many bytes were read for them. Lines are bytes up to a newline (or NUL with --null); nothing else is
stripped, and the last one needs no end. An empty line is the empty text, which is a key.

Invariants
  1. Keys come in the order they were given, and every key before a bad one comes before the error.
  2. Memory is bounded by PIECE_BYTES and MOST_KEY_BYTES, whatever the size of a file.
  3. A terminal or a pipe is answered as soon as a line is there; nothing waits for a full piece.
"""

from __future__ import annotations

import collections.abc as abc
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Protocol, cast

from bloomstore.cli.arguments import UsageError
from bloomstore.errors import BloomStoreError

PIECE_BYTES = 1 << 20
# As many as one commit of add_many takes: then an error in a piece has no finished part before it.
PIECE_KEYS = 65_536
# A longer "line" is no key, but a file of another kind.
MOST_KEY_BYTES = 16 << 20

CliKey = int | str | bytes


class BadKey(BloomStoreError):
    """A line or an argument is no key of the type that was asked for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some keys of the input, and the lines they were written on."""

    lines: list[bytes]
    keys: list[CliKey]
    input_bytes: int

    @property
    def texts(self) -> list[str]:
        """How the keys were written."""
        return [line.decode("utf-8") for line in self.lines]


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


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
        choices=tuple(_PARSERS),
        default="str",
        help="what a key is: a UTF-8 text (default), a number, or bytes written in hex",
    )
    parser.add_argument(
        "--null", action="store_true", help="keys in files end with NUL instead of a newline"
    )


def read_pieces(args: Namespace) -> abc.Iterator[Piece]:
    """The keys of all arguments, then of all files. Raises BadKey, OSError."""
    if args.keys:
        yield from _argument_pieces(args.keys, args.key_type)
    for source in _sources(args):
        with ExitStack() as stack:
            stream: _Readable
            if source == "-":
                stream, name = cast("_Readable", sys.stdin.buffer), "standard input"
            else:
                stream, name = stack.enter_context(Path(source).open("rb")), source
            yield from _stream_pieces(stream, name, b"\0" if args.null else b"\n", args.key_type)


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
    """Refuses to wait for keys that nobody knows they have to type."""
    if not args.keys and not args.sources and sys.stdin.isatty():
        raise UsageError("no keys: give KEY arguments, --from FILE, or --from - to type them")


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _sources(args: Namespace) -> list[str]:
    if args.sources:
        return list(args.sources)
    return [] if args.keys else ["-"]


def _argument_pieces(texts: list[str], key_type: str) -> abc.Iterator[Piece]:
    lines = [text.encode("utf-8", "surrogateescape") for text in texts]
    for start in range(0, len(lines), PIECE_KEYS):
        yield from _parse(lines[start : start + PIECE_KEYS], key_type, "argument", start + 1, 0)


def _stream_pieces(
    stream: _Readable, name: str, separator: bytes, key_type: str
) -> abc.Iterator[Piece]:
    word = "record" if separator == b"\0" else "line"
    number = 1
    for lines, size_bytes in _split(stream, separator, name, word):
        if separator == b"\n":
            lines = _without_marks(lines, number)
        for start in range(0, len(lines), PIECE_KEYS):
            some = lines[start : start + PIECE_KEYS]
            part_bytes = size_bytes * len(some) // len(lines)
            yield from _parse(some, key_type, f"{name}, {word}", number, part_bytes)
            number += len(some)


def _split(
    stream: _Readable, separator: bytes, name: str, word: str
) -> abc.Iterator[tuple[list[bytes], int]]:
    """The lines of a stream, those of one read together, and the bytes that were read for them."""
    begun: list[bytes] = []  # the line whose end has not come yet, in parts
    begun_bytes = number = 0
    while block := stream.read1(PIECE_BYTES):
        lines = block.split(separator)
        if len(lines) == 1:
            begun.append(block)
            begun_bytes += len(block)
            if begun_bytes > MOST_KEY_BYTES:
                raise BadKey(
                    f"{name}, {word} {number + 1}: expected a key of at most"
                    f" {MOST_KEY_BYTES >> 20} MiB, got a longer {word}"
                )
            continue
        lines[0] = b"".join([*begun, lines[0]])
        rest = lines.pop()
        begun, begun_bytes = [rest], len(rest)
        number += len(lines)
        yield lines, len(block)
    last = b"".join(begun)
    if last:
        yield [last], 0


def _parse(
    lines: list[bytes], key_type: str, where: str, first: int, size_bytes: int
) -> abc.Iterator[Piece]:
    parse, expected = _PARSERS[key_type]
    try:
        keys = [parse(line) for line in lines]
    except ValueError:
        good, bad = _up_to_the_first_bad(lines, parse)
    else:
        yield Piece(lines, keys, size_bytes)
        return
    if good:
        yield Piece(lines[: len(good)], good, size_bytes)
    raise BadKey(f"{where} {first + len(good)}: expected {expected}, got {_shortened(bad)}")


def _up_to_the_first_bad(
    lines: list[bytes], parse: abc.Callable[[bytes], CliKey]
) -> tuple[list[CliKey], bytes]:
    good: list[CliKey] = []
    for line in lines:
        try:
            good.append(parse(line))
        except ValueError:
            return good, line
    raise AssertionError("one of the lines is bad")


def _text(line: bytes) -> str:
    return line.decode("utf-8")


def _without_marks(lines: list[bytes], number: int) -> list[bytes]:
    """Lines as an editor on any system shows them: no CR before the newline, no byte order mark."""
    if number == 1 and lines and lines[0].startswith(_BYTE_ORDER_MARK):
        lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
    return [line.removesuffix(b"\r") for line in lines]


def _integer(line: bytes) -> int:
    if b"_" in line:
        raise ValueError("Python's own way to write numbers is not everybody's")
    return int(line)


def _hexadecimal(line: bytes) -> bytes:
    return bytes.fromhex(line.decode("ascii"))


_PARSERS: dict[str, tuple[abc.Callable[[bytes], CliKey], str]] = {
    "str": (_text, "UTF-8 text"),
    "int": (_integer, "a whole number"),
    "bytes-hex": (_hexadecimal, "bytes as pairs of hex digits"),
}


def _shortened(line: bytes) -> str:
    text = repr(line)[1:]
    return text if len(text) <= 60 else f"{text[:56]}...'"
