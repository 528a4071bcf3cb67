"""Repair mends what it can without losing a key, and says what needs a rebuild."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import lmdb
import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.crash import crash_point
from bloomstore.errors import DamagedRow, StoreFailed
from bloomstore.segment.header import HEADER_BYTES
from bloomstore.segment.segment import Segment
from bloomstore.store.durable import reasons, stage_files
from bloomstore.store.view import load_view
from tests.faults.damage import flip_byte
from tests.support.soundness import assert_sound

KEYS = np.arange(3000)


@pytest.fixture
def users_path(path: Path) -> Path:
    with bloomstore.open(path) as store:
        store.create("users", Scalable(target_error=0.01, initial_capacity=1000)).add_many(KEYS)
    return path


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").iterdir())


def repair(path: Path) -> list[str]:
    with bloomstore.open(path) as store:
        return [str(done) for done in store.repair()]


def test_a_sound_store_needs_no_repair(users_path: Path) -> None:
    assert repair(users_path) == []
    assert_sound(users_path)


@pytest.mark.parametrize("index", [0, -1], ids=["sealed", "active"])
def test_damaged_blocks_become_ones(users_path: Path, index: int) -> None:
    flip_byte(segments(users_path)[index], random.Random(3), HEADER_BYTES, HEADER_BYTES + 100)
    (line,) = repair(users_path)
    assert "blocks [0] set to ones" in line
    assert "are ones, they answer maybe; rebuild the filter" in repair(users_path)[0]
    with bloomstore.open(users_path) as store:
        users = store["users"]
        assert users.may_contain_many(KEYS).all()
        assert "damaged blocks [0]" in str(users.state)
        assert users.state.is_certain
        users.add_many(range(5000, 6000))
        assert users.may_contain_many(range(5000, 6000)).all()
        assert ["block 0 was damaged" in str(problem) for problem in store.check()] == [True]
        with store.rebuild("users") as new:
            new.add_many([*KEYS.tolist(), *range(5000, 6000)])
            new.switch()
        assert users.state.is_sound
    assert_sound(users_path)


def test_a_stage_that_an_older_version_poisoned_for_its_blocks_is_mended(users_path: Path) -> None:
    flip_byte(segments(users_path)[-1], random.Random(3), HEADER_BYTES, HEADER_BYTES + 100)
    with bloomstore.open(users_path) as store:
        with store._core.catalog.read() as view:
            newest = view.stage_rows(view.filter_row("users").number)[-1]  # type: ignore[union-attr]
        store._core.poison(newest, reasons.damaged_blocks([0]))
        assert not store["users"].state.is_certain
        (line,) = [str(done) for done in store.repair()]
        assert "blocks [0] set to ones" in line
        assert store["users"].state.is_certain
        assert store["users"].may_contain_many(KEYS).all()


def test_a_stage_whose_sync_failed_is_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Segment.sync

    def fail(self: Segment) -> None:
        raise OSError(5, "Input/output error")

    with bloomstore.open(path) as store:
        users = store.create("users", Fixed(capacity=5000, target_error=0.01))
        users.add_many(KEYS)
        monkeypatch.setattr(Segment, "sync", fail)
        with pytest.raises(StoreFailed, match="Input/output error"):
            store.checkpoint()
        assert "nobody" in users
        assert str(users.state) == "damaged: stage 0: a sync failed: Input/output error"
        monkeypatch.setattr(Segment, "sync", real)
        store.checkpoint()  # never tries the poisoned stage again
        assert not users.state.is_sound
        (before,) = segments(path)
        (done,) = store.repair()
        assert "written again as" in str(done)
        (after,) = segments(path)
        assert after.name != before.name
        assert users.state.is_sound
        assert users.may_contain_many(KEYS).all()
        assert "nobody" not in users
        users.add("next")
    assert_sound(path)


def fail_to_sync(segment: Segment) -> None:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("has_checksums", [True, False])
def test_what_is_lost_with_a_sync_is_not_written_again_as_sound(
    path: Path, monkeypatch: pytest.MonkeyPatch, has_checksums: bool
) -> None:
    keys = np.arange(100_000)
    with bloomstore.open(path) as store:
        store.create("users", Fixed(capacity=200_000, target_error=0.01)).add_many(keys)
    with monkeypatch.context() as failing, bloomstore.open(path) as store:
        store["users"].add("next")
        failing.setattr(Segment, "sync", fail_to_sync)
        with pytest.raises(StoreFailed, match="Input/output error"):
            store.checkpoint()
        if not has_checksums:
            forget_checksums(store)
    (file,) = segments(path)
    with file.open("r+b") as raw:
        raw.seek(HEADER_BYTES)
        raw.write(bytes(1000))
    (line,) = repair(path)
    assert "written again as" in line
    assert "rebuild the filter" in line
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(keys).all()
        assert "next" in store["users"]
        store["users"].add("and the next")
        assert "and the next" in store["users"]
        assert list(store.check()) != []


def test_a_sync_that_fails_in_a_repair_does_not_replace_the_doubt_for_lost_keys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        store.create("users", Fixed(capacity=5000, target_error=0.01)).add_many(KEYS)
        store.checkpoint()
        store._core.poison(load_view(store._core, "users").live.newest.row, reasons.ROLLED_BACK)
        forget_checksums(store)
        with monkeypatch.context() as failing:
            failing.setattr(Segment, "sync", fail_to_sync)
            with pytest.raises(StoreFailed, match="Input/output error"):
                store.repair()
        for _ in range(2):
            assert "rebuild the filter" in str([*store.repair()][-1])
            assert "nobody" in store["users"]


def forget_checksums(store: bloomstore.Store) -> None:
    core = store._core
    with core.hold(), core.catalog.write() as change:
        for key, _ in change.rows("blocks"):
            change._delete("blocks", key)


def test_a_missing_file_needs_a_rebuild(users_path: Path) -> None:
    segments(users_path)[0].unlink()
    (line,) = repair(users_path)
    assert "rebuild the filter" in line
    with bloomstore.open(users_path) as store:
        assert "nobody" in store["users"]
        with store.rebuild("users") as new:
            new.add_many(KEYS)
            new.switch()
        assert store["users"].state.is_sound
        assert "nobody" not in store["users"]
    assert_sound(users_path)


def test_a_rolled_back_catalog_takes_changes_again_but_is_not_trusted(users_path: Path) -> None:
    older = Path(shutil.copytree(users_path / "catalog", users_path.with_name("older")))
    with bloomstore.open(users_path) as store:
        store["users"].add_many(range(3000, 9000))
    shutil.rmtree(users_path / "catalog")
    shutil.move(older, users_path / "catalog")
    with bloomstore.open(users_path) as store:
        with pytest.raises(StoreFailed, match="rolled back"):
            store["users"].add("x")
        lines = [str(done) for done in store.repair()]
        assert "every filter is in doubt" in lines[0]
        assert "rebuild the filter" in lines[-1]
        assert "nobody" in store["users"]
        store["users"].add("x")
        with store.rebuild("users") as new:
            new.add_many(range(9000))
            new.switch()
        assert store["users"].state.is_sound
        assert store["users"].may_contain_many(range(9000)).all()


def test_a_failed_sync_of_a_process_filter_needs_a_rebuild(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Segment.sync

    def fail(self: Segment) -> None:
        raise OSError(5, "Input/output error")

    with bloomstore.open(path) as store:
        users = store.create("users", Fixed(capacity=5000, target_error=0.01), durability="process")
        users.add_many(KEYS)
        monkeypatch.setattr(Segment, "sync", fail)
        with pytest.raises(StoreFailed):
            store.checkpoint()
        monkeypatch.setattr(Segment, "sync", real)
        (done,) = store.repair()
        assert done.needs_rebuild
        assert "nobody" in users


def test_damage_is_seen_by_a_process_that_comes_second(users_path: Path) -> None:
    with bloomstore.open(users_path) as store:
        store.create("other", Fixed(capacity=100, target_error=0.01))
    newest = segments(users_path)[1]
    content = bytearray(newest.read_bytes())
    content[HEADER_BYTES : HEADER_BYTES + 200] = bytes(200)
    newest.write_bytes(bytes(content))
    with bloomstore.open(users_path) as store:
        assert "alice" not in store["other"]
        child = os.fork()
        if child == 0:
            os._exit(0 if store["users"].may_contain_many(KEYS).all() else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_one_damaged_filter_row_leaves_the_others_alone(users_path: Path) -> None:
    with bloomstore.open(users_path) as store:
        store.create("other", Fixed(capacity=100, target_error=0.01)).add("alice")
    with lmdb.open(str(users_path / "catalog"), max_dbs=16, map_size=1 << 30) as environment:
        handle = environment.open_db(b"filters", create=False)
        with environment.begin(write=True, db=handle) as transaction:
            transaction.put(b"users", b"garbage garbage")
    with bloomstore.open(users_path) as store:
        assert "alice" in store["other"]
        assert "bob" not in store["other"]
        store["other"].add("carol")
        with pytest.raises(DamagedRow):
            store["users"]
        assert [done.needs_rebuild for done in store.repair()] == [True]
        store.drop("users")
        assert list(store) == ["other"]
        assert "carol" in store["other"]


@pytest.fixture
def forgetful_path(path: Path) -> Path:
    """A store whose catalog was rolled back to before the filter `users` was made."""
    with bloomstore.open(path) as store:
        store.create("other", Fixed(capacity=100, target_error=0.01)).add("alice")
    older = Path(shutil.copy(path / "catalog" / "data.mdb", path.with_name("older")))
    with bloomstore.open(path) as store:
        store.create("users", Fixed(capacity=5000, target_error=0.01)).add_many(KEYS)
    shutil.copy(older, path / "catalog" / "data.mdb")
    return path


def test_a_filter_that_a_rolled_back_catalog_has_forgotten_is_not_made_anew_as_empty(
    forgetful_path: Path,
) -> None:
    forgotten = segments(forgetful_path)[-1].name
    lines = repair(forgetful_path)
    assert any(forgotten in line and "forgotten" in line for line in lines)
    with bloomstore.open(forgetful_path) as store:  # also after it was opened again
        users = store.ensure("users", Scalable(target_error=0.01, initial_capacity=5000))
        assert users.may_contain_many(KEYS).all()
        assert forgotten in str(users.state)
        assert not users.state.is_certain
        users.add("new")
        with store.rebuild("users") as new:
            new.add_many(KEYS)
            new.switch()
        assert users.state.is_sound
        assert users.may_contain_many(KEYS).all()
        assert "nobody" not in users
    with bloomstore.open(forgetful_path) as store:
        assert store["users"].state.is_sound
        fenced = store.create("guard", Fixed(capacity=10, target_error=0.01), fence="not built")
        assert str(fenced.state) == "fenced: not built"


def test_a_backup_knows_of_forgotten_filters_too(forgetful_path: Path) -> None:
    repair(forgetful_path)
    saved = forgetful_path.with_name("saved")
    with bloomstore.open(forgetful_path) as store:
        store.backup(saved)
    with bloomstore.open(saved) as store:
        users = store.ensure("users", Scalable(target_error=0.01, initial_capacity=5000))
        assert users.may_contain_many(KEYS).all()


def test_new_filters_are_sound_again_once_the_forgotten_files_are_removed(
    forgetful_path: Path,
) -> None:
    forgotten = segments(forgetful_path)[-1]
    repair(forgetful_path)
    forgotten.unlink()
    with bloomstore.open(forgetful_path) as store:
        users = store.ensure("users", Fixed(capacity=5000, target_error=0.01))
        assert users.state.is_sound
        assert "nobody" not in users


def test_files_that_a_rolled_back_catalog_calls_dead_are_not_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been written when they were not finished, and they became stages since."""
    data = path / "catalog" / "data.mdb"
    with bloomstore.open(path) as store:
        crash = crash_point

        def copy(point: str) -> None:
            if point == "new file: tombstone committed":
                shutil.copy(data, path.with_name("older"))
            crash(point)

        monkeypatch.setattr(stage_files, "crash_point", copy)
        store.create("users", Fixed(capacity=5000, target_error=0.01)).add_many(KEYS)
        store.checkpoint()
    shutil.copy(path.with_name("older"), data)
    (segment,) = segments(path)
    assert any(segment.name in line for line in repair(path))
    assert segments(path) == [segment]
    with bloomstore.open(path) as store:
        users = store.ensure("users", Fixed(capacity=5000, target_error=0.01))
        assert users.may_contain_many(KEYS).all()
