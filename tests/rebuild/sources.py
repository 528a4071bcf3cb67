"""The same keys in every kind of file, and sources that misbehave."""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from bloomstore.rebuild import (
    ArrowSource,
    Batch,
    CsvSource,
    Incomplete,
    ParquetSource,
    Source,
    TextSource,
)

KINDS = ("txt", "csv", "parquet", "arrow", "feather")


class Stop(Exception):
    """Ends a rebuild in the middle, as if its process had been killed."""


def make_file(folder: Path, kind: str, keys: list[str]) -> Path:
    path = folder / f"keys.{kind}"
    if kind == "txt":
        path.write_text("".join(f"{key}\n" for key in keys))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["number", "key"], *enumerate_keys(keys)])
    else:
        table = pa.table({"number": list(range(len(keys))), "key": keys})
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=1000)
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=700)
        else:
            pyarrow.feather.write_feather(table, path, chunksize=700)
    return path


def enumerate_keys(keys: list[str]) -> Iterator[list[Any]]:
    return ([number, key] for number, key in enumerate(keys))


def make_source(path: Path, columns: tuple[str, ...] = ("key",)) -> Source:
    kinds = {".csv": CsvSource, ".parquet": ParquetSource, ".arrow": ArrowSource}
    if path.suffix == ".txt":
        return TextSource(path)
    return kinds.get(path.suffix, ArrowSource)(path, columns)


def plain(keys: Any) -> list[Any]:
    return keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)


class Listed(Source):
    """Keys of a list, in batches of 100. `ends_at` cuts it off, with or without a word."""

    def __init__(self, keys: list[Any], *, ends_at: int | None = None, error: Any = None) -> None:
        self.keys = keys
        self.ends_at = ends_at
        self.error = error
        self.state = 0

    def identity(self) -> dict[str, Any]:
        return {"keys": len(self.keys), "state": self.state}

    def count(self) -> int:
        return len(self.keys)

    def describe(self) -> str:
        return "a list"

    def batches(self, position: Any) -> Generator[Batch, None, None]:
        for first in range(position or 0, len(self.keys), 100):
            if self.ends_at is not None and first >= self.ends_at:
                raise self.error or Incomplete(f"read {first} rows of {len(self.keys)}")
            part = self.keys[first : first + 100]
            yield Batch(part, len(part), first + len(part))
