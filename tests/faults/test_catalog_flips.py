"""data.mdb is looked at before LMDB is given it: a flipped bit loses no key and ends no process."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic, Scalable
from bloomstore.catalog.catalog import Catalog
from bloomstore.catalog.pages import walk
from bloomstore.errors import DamagedFile, DamagedRow, FilterNotFound, StoreFailed
from tests.faults import flips

FLIPS = 60


@pytest.fixture(scope="module", params=["closed", "killed"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "store"
    flips.make_store(path, killed=request.param == "killed")
    return path


def test_a_flipped_bit_loses_no_key_and_ends_no_process(sound: Path, tmp_path: Path) -> None:
    campaign = flips.Flips(sound, seed=1)
    for _ in range(FLIPS):
        kind, where, found = campaign.one(tmp_path / "store")
        assert found <= flips.HARMLESS, f"{kind}, {where}: {found}"


def test_what_was_not_damaged_is_sound(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "store")
    assert flips.look(tmp_path / "store") <= {"ok", "maybe"}  # a reader does not replay a journal


def data_of(path: Path) -> Path:
    return path / "catalog" / "data.mdb"


def rename_row(path: Path, table: str, old: bytes, new: bytes) -> None:
    """Gives a row another key, as a flipped bit does: its checksum covers the old one."""
    catalog = Catalog(path / "catalog", read_only=False)
    with catalog.write() as change:
        tree = change._tables[table]
        value = change._transaction.pop(old, db=tree)
        change._transaction.put(new, value, db=tree)
    catalog.close()


@pytest.fixture
def store_path(path: Path) -> Path:
    with bloomstore.open(path) as store:
        store.create("seen", Dynamic(capacity=500, target_error=0.001)).add_many(range(2000))
        store.create("other", Scalable(target_error=0.01)).add("key")
        store.notes["guard"] = b"built"
    return path


@pytest.mark.parametrize("new", [b"seem", b"\xf3een"])
def test_a_filter_whose_name_was_damaged_is_not_made_again(store_path: Path, new: bytes) -> None:
    rename_row(store_path, "filters", b"seen", new)
    for key in ("one", "two"):
        with bloomstore.open(store_path) as store:
            for ask in (lambda: store["seen"], lambda: store["never"]):
                with pytest.raises(DamagedRow, match="checksum does not fit"):
                    ask()
            with pytest.raises(DamagedRow):
                store.ensure("seen", Scalable(target_error=0.01))
            with pytest.raises(DamagedRow):
                store.create("seen", Scalable(target_error=0.01))
            with pytest.raises(DamagedRow):
                store.drop("seen")
            assert "key" in store["other"]
            assert "nobody" not in store["other"]
            assert store["other"].add(key)
            assert any("checksum does not fit" in str(problem) for problem in store.check())
    with bloomstore.open(store_path) as store:
        (damaged,) = set(store) - {"other"}
        store.drop(damaged)
        assert list(store) == ["other"]
        with pytest.raises(FilterNotFound):
            store["seen"]
        store.create("seen", Scalable(target_error=0.01))


def test_a_note_whose_name_was_damaged_is_not_missing(store_path: Path) -> None:
    rename_row(store_path, "notes", b"guard", b"\xe7uard")
    with bloomstore.open(store_path) as store:
        with pytest.raises(DamagedRow):
            store.notes["guard"]
        with pytest.raises(DamagedRow):
            store.notes.change("guard", lambda _: b"built anew")
        assert len(list(store.notes)) == 1


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("stages", ["last", "all"])
def test_stages_that_are_missing_at_the_end_of_a_chain_are_noticed(
    store_path: Path, read_only: bool, stages: str
) -> None:
    with bloomstore.open(store_path) as store:
        number, count = store["seen"].number, len(store["seen"].stats().stages)
    catalog = Catalog(store_path / "catalog", read_only=False)
    with catalog.write() as change:
        for row in change.stage_rows(number)[0 if stages == "all" else count - 1 :]:
            change.delete_stage(row)
    catalog.close()
    with bloomstore.open(store_path, read_only=read_only) as store:
        seen = store["seen"]
        assert "the chain has 4 stages" in str(seen.state)
        assert seen.may_contain_many(range(2000)).all()
        assert "never" in seen
        assert any("the chain has 4 stages" in str(problem) for problem in store.check())
        seen.stats()
        if not read_only:
            with pytest.raises(StoreFailed, match="cannot take keys, rebuild it: the chain has 4"):
                seen.add("new")
            with pytest.raises(StoreFailed), store.batch():
                seen.add("new")
            assert any("the chain has 4 stages" in str(done) for done in store.repair())
            with store.rebuild("seen") as new:
                new.add_many(range(2000))
                new.switch()
            assert seen.state.is_sound
            assert seen.may_contain_many(range(2000)).all()


@pytest.mark.parametrize("read_only", [True, False])
def test_an_older_catalog_over_a_closed_store_is_noticed(store_path: Path, read_only: bool) -> None:
    older = data_of(store_path).read_bytes()
    with bloomstore.open(store_path) as store:
        store["seen"].add("late")
    data_of(store_path).write_bytes(older)
    with bloomstore.open(store_path, read_only=read_only) as store:
        assert "the catalog was rolled back" in str(store["seen"].state)
        assert "late" in store["seen"]
        assert any("rolled back" in str(problem) for problem in store.check())
        if not read_only:
            with pytest.raises(StoreFailed, match="takes no changes"):
                store["seen"].add("more")
            assert any("every filter is in doubt" in str(done) for done in store.repair())
            store["seen"].add("more")
    if not read_only:
        with bloomstore.open(store_path) as store:
            assert not store["seen"].state.is_sound
            assert store._core.doubt is None


@pytest.mark.parametrize("change", [-2, 2])
def test_a_changed_transaction_number_selects_no_older_catalog(
    store_path: Path, change: int
) -> None:
    with bloomstore.open(store_path) as store:
        store["seen"].add("late")
    data = bytearray(data_of(store_path).read_bytes())
    places = [page * flips.PAGE + 144 for page in (0, 1)]
    numbers = [struct.unpack_from("=Q", data, place)[0] for place in places]
    page = numbers.index(max(numbers) if change < 0 else min(numbers))
    struct.pack_into("=Q", data, places[page], numbers[page] + change)
    data_of(store_path).write_bytes(data)
    if change > 0:
        with pytest.raises(DamagedFile, match="the free list ends with"):
            bloomstore.open(store_path, read_only=True)
    else:
        with bloomstore.open(store_path, read_only=True) as store:
            assert "the catalog was rolled back" in str(store["seen"].state)


def test_garbage_in_the_words_is_no_rollback(store_path: Path) -> None:
    (store_path / "lock").write_bytes(b"\xa5" * 4096)
    with bloomstore.open(store_path) as store:
        assert store["seen"].state.is_sound


def test_every_catalog_that_lmdb_writes_is_sound(path: Path) -> None:
    """Deep trees, long values, free pages, deletions: the walk refuses none of them."""
    with bloomstore.open(path) as store:
        for number in range(300):
            store.notes[f"note {number * 7919 % 300}"] = bytes(number * 37 % 9000)
        for number in range(0, 300, 3):
            del store.notes[f"note {number}"]
        rows = len(store.notes)
    assert rows == 200
    assert walk(data_of(path)) > 400
