"""Keys from columns of files: CSV, Parquet, Arrow IPC (Feather).

Several columns make tuples. Rows with a null in one of them have no key and are passed over. A
position is the number of rows before it; row groups and record batches before it are not read.

A single column of Parquet or Arrow goes to the filter as it lies in memory, without a Python object
per key. pyarrow is an extra (`bloomstore[arrow]`), imported when a file needs it; CSV needs none.
"""

from __future__ import annotations

import collections.abc as abc
import csv
import importlib
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from bloomstore.errors import BadKey, Incomplete, SourceError
from bloomstore.keys import Key
from bloomstore.keys.lines import PARSERS
from bloomstore.rebuild.source import BATCH_ROWS, Batch, Position, Source
from bloomstore.rebuild.text_source import file_identity, reading


class _Columns(Source):
    """Columns of a file of rows."""

    is_fixed = True

    def __init__(self, path: Path | str, columns: abc.Sequence[str]) -> None:
        if not columns:
            raise SourceError(f"{path}: name the column of the keys")
        self._path = Path(path).absolute()
        self._columns = list(columns)

    def identity(self) -> dict[str, Any]:
        """The file as it is now, and the columns."""
        return file_identity(self._path) | {"columns": self._columns}

    def describe(self) -> str:
        """The path and the columns."""
        return f"{self._path}, {', '.join(self._columns)}"

    def _places(self, found: list[str]) -> list[int]:
        missing = [name for name in self._columns if name not in found]
        if missing:
            raise SourceError(
                f"{self._path}: no column {missing[0]!r}, it has {', '.join(map(repr, found))}"
            )
        return [found.index(name) for name in self._columns]


class CsvSource(_Columns):
    """Columns of a CSV file whose first row has their names; UTF-8, fields quoted by `"`."""

    def __init__(self, path: Path | str, columns: abc.Sequence[str], key_type: str = "str") -> None:
        super().__init__(path, columns)
        self._key_type = key_type

    def identity(self) -> dict[str, Any]:
        """The file, the columns, and how they are read."""
        return super().identity() | {"type": self._key_type}

    def count(self) -> int:
        """The number of newlines, which exceeds the rows if some are inside quotes."""
        with reading(self._path) as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """Rows are passed over one by one up to the position."""
        done = position or 0
        parse, expected = PARSERS[self._key_type]
        with TextIOWrapper(reading(self._path), encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            try:
                places = self._places(next(rows, []))
                if sum(1 for _ in islice(rows, done)) != done:
                    raise Incomplete(f"{self._path}: fewer than the {done} rows that were read")
                while part := list(islice(rows, BATCH_ROWS)):
                    keys = [self._key(row, places, parse) for row in part]
                    done += len(part)
                    yield Batch(keys, len(part), done)
            except (csv.Error, ValueError, IndexError) as error:
                what = str(error) if isinstance(error, csv.Error) else f"expected {expected}"
                line = rows.line_num
                raise BadKey(f"{self._path}, at or before line {line}: {what}") from None

    @staticmethod
    def _key(row: list[str], places: list[int], parse: abc.Callable[[bytes], Key]) -> Key:
        parts = [parse(row[place].encode()) for place in places]
        return parts[0] if len(parts) == 1 else tuple(parts)


class ParquetSource(_Columns):
    """Columns of a Parquet file."""

    def count(self) -> int:
        """The number of rows in the file's metadata."""
        with _arrow_errors(self._path), self._open() as file:
            return int(file.metadata.num_rows)

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """Row groups that end before the position are not read."""
        start = position or 0
        with _arrow_errors(self._path), self._open() as file:
            self._places(list(file.schema_arrow.names))
            total, group, done = file.metadata.num_rows, 0, 0
            while (
                group < file.num_row_groups
                and done + file.metadata.row_group(group).num_rows <= start
            ):
                done += file.metadata.row_group(group).num_rows
                group += 1
            for part in file.iter_batches(
                BATCH_ROWS, row_groups=range(group, file.num_row_groups), columns=self._columns
            ):
                kept = part.slice(max(0, start - done))
                done += part.num_rows
                if kept.num_rows:
                    yield Batch(_keys(kept, self._columns), kept.num_rows, done)
        if done != total:
            raise Incomplete(f"{self._path}: read {done} rows of {total}")

    def _open(self) -> Any:
        return _pyarrow("pyarrow.parquet").ParquetFile(
            self._path, memory_map=False, pre_buffer=False
        )


class ArrowSource(_Columns):
    """Columns of an Arrow IPC file, which Feather files are too."""

    def count(self) -> int:
        """The number of rows of all record batches."""
        with _arrow_errors(self._path), self._open() as file:
            return sum(file.get_batch(n).num_rows for n in range(file.num_record_batches))

    def batches(self, position: Position | None) -> abc.Generator[Batch]:
        """The keys in slices of the record batches."""
        start, done = position or 0, 0
        with _arrow_errors(self._path), self._open() as file:
            self._places(list(file.schema.names))
            for number in range(file.num_record_batches):
                part = file.get_batch(number)
                for first in range(max(0, start - done), part.num_rows, BATCH_ROWS):
                    kept = part.slice(first, BATCH_ROWS)
                    position = done + first + kept.num_rows
                    yield Batch(_keys(kept, self._columns), kept.num_rows, position)
                done += part.num_rows

    def _open(self) -> Any:
        arrow = _pyarrow("pyarrow")
        ipc = _pyarrow("pyarrow.ipc")
        return ipc.open_file(arrow.memory_map(str(self._path)))


def _keys(part: Any, columns: list[str]) -> Any:
    """The keys of a record batch, without nulls."""
    found = [part.column(name) for name in columns]
    if len(found) == 1:
        return found[0].drop_null() if found[0].null_count else found[0]
    rows = zip(*(column.to_pylist() for column in found), strict=True)
    return [row for row in rows if None not in row]


def _pyarrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SourceError(
            "Parquet and Arrow files need pyarrow: pip install 'bloomstore[arrow]'"
        ) from None


@contextmanager
def _arrow_errors(path: Path) -> abc.Iterator[None]:
    """Turns the errors of pyarrow about an unreadable file into SourceError."""
    arrow = _pyarrow("pyarrow")
    try:
        yield
    except (OSError, arrow.ArrowException) as error:
        raise SourceError(f"{path}: {error}") from error
