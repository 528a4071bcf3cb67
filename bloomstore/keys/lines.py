"""Keys from text: one per line, or per record that ends with NUL.

In: a stream of bytes and the type of a key (a UTF-8 text, a whole number, bytes in hex). Out:
Pieces, each with its keys, how they were written, and the bytes up to its end. A line is the bytes
up to a newline (or NUL); only a CR before the newline is stripped, and the last line needs no end.
An empty line is the empty text, which is a key.

Invariants
  1. Keys come in the order they were given, and every key before a bad one comes before the error.
  2. Memory is bounded by PIECE_BYTES and MOST_KEY_BYTES, whatever the size of a file.
  3. A terminal or a pipe is answered as soon as a line is there; nothing waits for a full piece.

The commands `add` and `query`, and the sources of text and CSV files, read their keys with this.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from typing import Protocol

from bloomstore.errors import BadKey

PIECE_BYTES = 1 << 20
# As many as one commit of add_many takes: then an error in a piece has no finished part before it.
PIECE_KEYS = 65_536
# A longer "line" is no key, but a file of another kind.
MOST_KEY_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TextKey = int | str | bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Some keys of the input, and the lines they were written on."""

    lines: list[bytes]
    keys: list[TextKey]
    input_bytes: int

    @property
    def texts(self) -> list[str]:
        """How the keys were written."""
        return [line.decode("utf-8") for line in self.lines]


class Readable(Protocol):
    """A stream that gives what is there."""

    def read1(self, size: int, /) -> bytes:
        """At most this many bytes; none at the end."""


def stream_pieces(
    stream: Readable, name: str, separator: bytes, key_type: str
) -> abc.Iterator[Piece]:
    """The keys of a stream, as they come. Raises BadKey."""
    word = "record" if separator == b"\0" else "line"
    number = 1
    for lines, size_bytes in split_lines(stream, separator, name, word, PIECE_BYTES):
        if separator == b"\n":
            lines = without_marks(lines, number)
        for start in range(0, len(lines), PIECE_KEYS):
            some = lines[start : start + PIECE_KEYS]
            part_bytes = size_bytes * len(some) // len(lines)
            yield from parse_lines(some, key_type, f"{name}, {word}", number, part_bytes)
            number += len(some)


def split_lines(
    stream: Readable, separator: bytes, name: str, word: str, block_bytes: int
) -> abc.Iterator[tuple[list[bytes], int]]:
    """The lines of a stream, those of one read together, and their bytes with their ends."""
    begun: list[bytes] = []  # the line whose end has not come yet, in parts
    begun_bytes = number = 0
    while block := stream.read1(block_bytes):
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
        size_bytes = begun_bytes + len(block) - len(rest)
        begun, begun_bytes = [rest], len(rest)
        number += len(lines)
        yield lines, size_bytes
    last = b"".join(begun)
    if last:
        yield [last], len(last)


def parse_lines(
    lines: list[bytes], key_type: str, where: str, first: int, size_bytes: int
) -> abc.Iterator[Piece]:
    """One piece with all keys, or one with those before a bad one, and BadKey."""
    parse, expected = PARSERS[key_type]
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
    lines: list[bytes], parse: abc.Callable[[bytes], TextKey]
) -> tuple[list[TextKey], bytes]:
    good: list[TextKey] = []
    for line in lines:
        try:
            good.append(parse(line))
        except ValueError:
            return good, line
    raise AssertionError("one of the lines is bad")


def _text(line: bytes) -> str:
    return line.decode("utf-8")


def without_marks(lines: list[bytes], number: int) -> list[bytes]:
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


PARSERS: dict[str, tuple[abc.Callable[[bytes], TextKey], str]] = {
    "str": (_text, "UTF-8 text"),
    "int": (_integer, "a whole number"),
    "bytes-hex": (_hexadecimal, "bytes as pairs of hex digits"),
}


def _shortened(line: bytes) -> str:
    text = repr(line)[1:]
    return text if len(text) <= 60 else f"{text[:56]}...{text[0]}"
