"""The lines of a text file as the source of a rebuild; and files as sources in general.

How a line becomes a key is in keys/lines.py.
"""

from __future__ import annotations

import collections.abc as abc
import os
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG
from typing import Any

from bloomstore.errors import Incomplete, SourceError
from bloomstore.keys.lines import PARSERS, parse_lines, split_lines, without_marks
from bloomstore.rebuild.source import Batch, Position, Source

_SOURCE_BYTES = 4 << 20


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
        """The number of lines: separators, plus one for a last line without a separator."""
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
            for lines, size_bytes in split_lines(file, self._separator, name, word, _SOURCE_BYTES):
                if self._separator == b"\n":
                    lines = without_marks(lines, number)
                offset += size_bytes
                (piece,) = parse_lines(lines, self._key_type, f"{name}, {word}", number, size_bytes)
                number += len(lines)
                yield Batch(piece.keys, len(lines), [offset, number])
        if offset != end:
            raise Incomplete(f"{self._path}: read up to byte {offset}, expected {end}")


def file_identity(path: Path) -> dict[str, Any]:
    """JSON that names the file and its present state."""
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
