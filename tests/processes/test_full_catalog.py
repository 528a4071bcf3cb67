"""LMDB's two tables of fixed size: places of readers, and the map. Dead processes keep neither."""

from __future__ import annotations

import collections.abc as abc
import contextlib
import itertools
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog import room
from bloomstore.catalog.environment import MAX_READERS
from bloomstore.errors import SpecError, StoreFailed

SPEC = Scalable(target_error=0.01)
SMALL = 1 << 20


@contextlib.contextmanager
def stuck_reader(path: Path, transactions: int = 1) -> abc.Iterator[int]:
    """A process that stands still inside so many read transactions, and is killed then."""
    code = f"""
        import lmdb
        environment = lmdb.open({str(path / "catalog")!r}, max_readers={MAX_READERS}, create=False,
                                map_size=1 << 36, max_dbs=8, max_spare_txns=0)
        held = []
        try:
            while len(held) < {transactions}:
                held.append(environment.begin())
        except lmdb.ReadersFullError:
            pass
        print(len(held), flush=True)
        import time
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def killed_reader(path: Path, transactions: int) -> None:
    with stuck_reader(path, transactions):
        pass


@pytest.mark.parametrize("read_only", [True, False])
def test_places_of_dead_readers_are_used_again(path: Path, read_only: bool) -> None:
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add_many(range(1000))
    with bloomstore.open(path, read_only=read_only) as store:
        killed_reader(path, MAX_READERS)
        seen = store["seen"]
        assert seen.state.is_sound
        assert seen.may_contain_many(range(1000)).all()
        assert "nobody" not in seen
        if not read_only:
            killed_reader(path, MAX_READERS)
            assert store.ensure("other", SPEC).add("key")
            killed_reader(path, MAX_READERS)
            assert seen.add("new")
            killed_reader(path, MAX_READERS)
            store.checkpoint()
            killed_reader(path, MAX_READERS)
            assert [str(problem) for problem in store.check()] == []


def size_of(path: Path) -> int:
    return (path / "catalog" / "data.mdb").stat().st_size


def test_a_full_catalog_takes_deletions_and_then_goes_on(path: Path) -> None:
    with bloomstore.open(path, map_size=SMALL) as store:
        seen = store.create("seen", SPEC)
        seen.add_many(range(1000))
        with pytest.raises(StoreFailed, match=f"is full, its map_size is {SMALL}.*delete notes"):
            for number in itertools.count():
                store.notes[f"note {number}"] = bytes(50_000)
        for add in (
            lambda: seen.add_many(range(5000, 5500)),
            lambda: store.create("other", SPEC),
            lambda: [seen.add(f"key {number}") for number in range(20)],
        ):
            with pytest.raises(StoreFailed, match="is full"):
                add()
        assert seen.may_contain_many(range(1000)).all()
        store.checkpoint()
        for note in list(store.notes):
            del store.notes[note]
        assert seen.add_many(range(5000, 5500)) > 400
        store.drop("seen")
        store.create("seen", SPEC).add("key")
    with bloomstore.open(path) as store:
        assert list(store) == ["seen"]
        assert list(store.check()) == []


def test_a_map_that_a_stuck_reader_has_filled_can_be_emptied(path: Path) -> None:
    with bloomstore.open(path, map_size=SMALL) as store:
        seen = store.create("seen", SPEC)
        store.create("other", SPEC)
        store.notes["note"] = b"text"
        with stuck_reader(path) as process:
            added = 0
            with pytest.raises(StoreFailed, match=rf"processes \[{process}\] read and keep"):
                for added in itertools.count(0, 1000):
                    seen.add_many(range(added, added + 1000))
            store.drop("other")
            del store.notes["note"]
            store.checkpoint()
            store.close()
        with bloomstore.open(path, map_size=SMALL) as store:
            assert store["seen"].may_contain_many(range(added)).all()
            with stuck_reader(path):
                pass
            assert store["seen"].add("new")


def test_a_place_of_a_dead_reader_does_not_fill_the_map(path: Path) -> None:
    with bloomstore.open(path, map_size=SMALL) as store:
        seen = store.create("seen", SPEC)
        killed_reader(path, 1)
        for first in range(0, 100_000, 1000):
            seen.add_many(range(first, first + 1000))
        assert size_of(path) < 3 * SMALL
        assert seen.may_contain_many(range(100_000)).all()


def test_growth_is_told_with_the_process_that_causes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "_SMALL_FILE_BYTES", SMALL)
    with bloomstore.open(path) as store:
        seen = store.create("seen", SPEC)
        with stuck_reader(path) as process, caplog.at_level(logging.WARNING, "bloomstore"):
            for first in range(0, 60_000, 200):
                seen.add_many(range(first, first + 200))
                if not first % 2000:
                    store.checkpoint()
    told = [record.getMessage() for record in caplog.records if "keep what" in record.getMessage()]
    assert told
    assert all(f"processes [{process}] keep what was freed" in text for text in told)
    assert len(told) < 5


def test_a_backup_has_no_free_pages(path: Path, tmp_path: Path) -> None:
    with bloomstore.open(path) as store:
        seen = store.create("seen", SPEC)
        seen.add_many(range(1000))
        store.notes["large"] = bytes(5 << 20)
        del store.notes["large"]
        store.backup(tmp_path / "copy")
    assert size_of(path) > 5 << 20
    assert size_of(tmp_path / "copy") < 1 << 20
    with bloomstore.open(tmp_path / "copy") as store:
        assert store["seen"].may_contain_many(range(1000)).all()
        assert store["seen"].state.is_sound
        assert list(store.check()) == []


@pytest.mark.parametrize("map_size", [0, -1, 1 << 19, 1 << 46, 1e9, True, "1 GB", None])
def test_a_map_size_that_makes_no_sense_is_refused(path: Path, map_size: object) -> None:
    with pytest.raises(SpecError, match="map_size must be an int of"):
        bloomstore.open(path, map_size=map_size)  # type: ignore[arg-type]


def test_a_smaller_map_than_the_file_opens_and_deletes(path: Path) -> None:
    with bloomstore.open(path) as store:
        for number in range(100):
            store.notes[f"note {number}"] = bytes(50_000)
    with bloomstore.open(path, map_size=SMALL) as store:
        with pytest.raises(StoreFailed, match="is full"):
            store.notes["another"] = b"text"
        for number in range(100):
            del store.notes[f"note {number}"]
        store.notes["another"] = b"text"
