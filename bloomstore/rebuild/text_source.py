"""Keys from text: one per line, or per record that ends with NUL.

In: a stream of bytes and what a key is (a UTF-8 text, a whole number, bytes in hex). Out: Pieces,
each with its keys, how they were written, and the bytes up to its end; and TextSource, which gives
the keys of a file to a rebuild. Lines are bytes up to a newline (or NUL); nothing else is stripped
but a CR before it, and the last one needs no end. An empty line is the empty text, which is a key.

Invariants
  1. Keys come in the order they were given, and every key before a bad one comes before the error.
  2. Memory is bounded by PIECE_BYTES and MOST_KEY_BYTES, whatever the size of a file.
  3. A terminal or a pipe is answered as soon as a line is there; nothing waits for a full piece.
"""

from __future__ import annotations

import collections.abc as abc
import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol

from bloomstore.errors import BloomStoreError
from bloomstore.rebuild.source import Batch, Incomplete, Position, Source, SourceError

PIECE_BYTES = 1 << 20
# As many as one commit of add_many takes: then an error in a piece has no finished part before it.
PIECE_KEYS = 65_536
# A longer "line" is no key, but a file of another kind.
MOST_KEY_BYTES = 16 << 20

_SOURCE_BYTES = 4 << 20

TextKey = int | str | bytes


class BadKey(BloomStoreError):
    """A line or an argument is no key of the type that was asked for."""


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
        """At most so many bytes; none at the end."""


class TextSource(Source):
    """The lines of a file. A position is a byte, and the number of the line that begins there."""

    is_fixed = True

    def __init__(self, path: Path | str, key_type: str = "str", separator: bytes = b"\n") -> None:
        if key_type not in PARSERS:
            raise SourceError(f"a key is one of {', '.join(PARSERS)}, got {key_type!r}")
        self._path = Path(path).absolute()
        self._key_type = key_type
        self._separator = separator

    def identity(self) -> dict[str, Any]:
        """The file as it is now, and how it is read."""
        return file_identity(self._path) | {
            "type": self._key_type,
            "separator": self._separator.hex(),
        }

    def describe(self) -> str:
        """The path."""
        return str(self._path)

    def count(self) -> int:
        """Separators, and one for a last line without."""
        found, end = 0, self._separator
        with reading(self._path) as file:
            while block := file.read(_SOURCE_BYTES):
                found += block.count(self._separator)
                end = block[-1:]
        return found + (end != self._separator)

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """The lines from this one on."""
        offset, number = (0, 1) if position is None else position
        word = "record" if self._separator == b"\0" else "line"
        with reading(self._path) as file:
            end = os.fstat(file.fileno()).st_size
            file.seek(offset)
            name = str(self._path)
            for lines, size_bytes in _split(file, self._separator, name, word, _SOURCE_BYTES):
                if self._separator == b"\n":
                    lines = _without_marks(lines, number)
                offset += size_bytes
                (piece,) = parse_lines(lines, self._key_type, f"{name}, {word}", number, size_bytes)
                number += len(lines)
                yield Batch(piece.keys, len(lines), [offset, number])
        if offset != end:
            raise Incomplete(f"{self._path}: read up to byte {offset}, expected {end}")


def file_identity(path: Path) -> dict[str, Any]:
    """Which file this is, in which state."""
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    if not S_ISREG(status.st_mode):
        raise SourceError(f"{path}: not a file: it could not be read again from a position")
    return {
        "file": str(path.resolve()),
        "inode": [status.st_dev, status.st_ino],
        "bytes": status.st_size,
        "modified": status.st_mtime_ns,
        "changed": status.st_ctime_ns,  # the time of a file's content can be set, this one cannot
    }


def reading(path: Path) -> BufferedReader:
    """The open file."""
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def stream_pieces(
    stream: Readable, name: str, separator: bytes, key_type: str
) -> abc.Iterator[Piece]:
    """The keys of a stream, as they come. Raises BadKey."""
    word = "record" if separator == b"\0" else "line"
    number = 1
    for lines, size_bytes in _split(stream, separator, name, word, PIECE_BYTES):
        if separator == b"\n":
            lines = _without_marks(lines, number)
        for start in range(0, len(lines), PIECE_KEYS):
            some = lines[start : start + PIECE_KEYS]
            part_bytes = size_bytes * len(some) // len(lines)
            yield from parse_lines(some, key_type, f"{name}, {word}", number, part_bytes)
            number += len(some)


def _split(
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


PARSERS: dict[str, tuple[abc.Callable[[bytes], TextKey], str]] = {
    "str": (_text, "UTF-8 text"),
    "int": (_integer, "a whole number"),
    "bytes-hex": (_hexadecimal, "bytes as pairs of hex digits"),
}


def _shortened(line: bytes) -> str:
    text = repr(line)[1:]
    return text if len(text) <= 60 else f"{text[:56]}...{text[0]}"
