"""Every kind of file gives all its keys, from the beginning and from every position."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bloomstore.errors import BloomStoreError
from bloomstore.rebuild import (
    CsvSource,
    Incomplete,
    ParquetSource,
    SourceError,
    TextSource,
    files,
    text_source,
)
from tests.rebuild.sources import KINDS, make_file, make_source, plain

KEYS = [f"key {number}, «{number % 7}»" for number in range(5000)]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 600)
    monkeypatch.setattr(text_source, "_SOURCE_BYTES", 6000)


def test_a_path_may_be_a_str(tmp_path: Path) -> None:
    for kind, source in (("txt", text_source.TextSource), ("csv", files.CsvSource)):
        path = make_file(tmp_path, kind, KEYS)
        columns: list[Any] = [] if kind == "txt" else [["key"]]
        assert source(str(path), *columns).identity() == source(path, *columns).identity()


@pytest.mark.parametrize("kind", KINDS)
def test_all_keys_come_in_order_and_the_rest_from_every_position(tmp_path: Path, kind: str) -> None:
    source = make_source(make_file(tmp_path, kind, KEYS))
    batches = list(source.batches(None))
    assert [key for batch in batches for key in plain(batch.keys)] == KEYS
    assert sum(batch.rows for batch in batches) == len(KEYS)
    assert source.count() == len(KEYS) + (kind == "csv")  # its lines, with that of the names
    done = 0
    for batch in batches:
        done += len(plain(batch.keys))
        rest = [key for later in source.batches(batch.position) for key in plain(later.keys)]
        assert rest == KEYS[done:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_identity_changes_with_the_file(tmp_path: Path, kind: str) -> None:
    source = make_source(make_file(tmp_path, kind, KEYS))
    before = source.identity()
    assert source.identity() == before
    make_file(tmp_path, kind, KEYS[1:])
    assert source.identity() != before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_of_equal_size_and_time_is_another_one(
    tmp_path: Path, kind: str, in_place: bool
) -> None:
    path = make_file(tmp_path, kind, KEYS)
    before, status = make_source(path).identity(), path.stat()
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = make_file(other_folder, kind, KEYS)
    if in_place:
        path.write_bytes(other.read_bytes())
    else:
        other.replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = make_source(path).identity()
    assert after["bytes"] == before["bytes"]
    assert after["modified"] == before["modified"]
    assert after != before


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path, kind: str) -> None:
    source = make_source(make_file(tmp_path, kind, KEYS), ("email",))
    with pytest.raises(SourceError, match="no column 'email', it has 'number', 'key'"):
        list(source.batches(None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"nowhere.{kind}"
    with pytest.raises(SourceError, match=rf"{path}.*[Nn]o such file"):
        make_source(path).identity()
    with pytest.raises(SourceError, match=rf"nowhere.{kind}"):
        list(make_source(path).batches(None))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_what_is_no_such_file_is_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"keys.{kind}"
    path.write_bytes(b"not at all\n" * 100)
    with pytest.raises(SourceError, match=rf"keys.{kind}"):
        list(make_source(path).batches(None))


def test_two_columns_make_tuples_and_nulls_have_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    table = pa.table({"a": [1, 2, None, 4], "b": ["x", None, "y", "z"]})
    pa.parquet.write_table(table, path)
    (batch,) = ParquetSource(path, ["a", "b"]).batches(None)
    assert plain(batch.keys) == [(1, "x"), (4, "z")]
    assert batch.rows == 4
    (batch,) = ParquetSource(path, ["b"]).batches(None)
    assert plain(batch.keys) == ["x", "y", "z"]


def test_text_of_numbers_with_marks_and_without_a_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"\xef\xbb\xbf1\r\n-2\r\n33")
    (batch, last) = TextSource(path, "int").batches(None)
    assert [*batch.keys, *last.keys] == [1, -2, 33]
    assert last.position == [path.stat().st_size, 4]
    path.write_bytes(b"1\nzwei\n")
    with pytest.raises(BloomStoreError, match="numbers, line 2: expected a whole number"):
        list(TextSource(path, "int").batches(None))


def test_csv_fields_may_have_newlines_and_numbers_are_parsed(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text('a,b\n1,"x\ny"\n2,"say ""so"""\n')
    (batch,) = CsvSource(path, ["b"]).batches(None)
    assert batch.keys == ["x\ny", 'say "so"']
    (batch,) = CsvSource(path, ["a"], "int").batches(None)
    assert batch.keys == [1, 2]
    with pytest.raises(BloomStoreError, match="expected a whole number"):
        list(CsvSource(path, ["b"], "int").batches(None))
    path.write_text("a,b\n1\n")
    with pytest.raises(BloomStoreError, match="line 2"):
        list(CsvSource(path, ["b"]).batches(None))


def test_a_file_that_grows_while_it_is_read_is_incomplete(tmp_path: Path) -> None:
    path = make_file(tmp_path, "txt", KEYS)
    batches = TextSource(path).batches(None)
    next(batches)
    with path.open("a") as file:
        file.write("one more\n")
    with pytest.raises(Incomplete, match="expected"):
        list(batches)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path, "parquet", KEYS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"bloomstore\[arrow\]"):
        make_source(path).count()


def test_what_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a file"):
        TextSource(tmp_path).identity()
