"""What somebody has put in place of a store's files: links, pipes, folders. None of it is used."""

from __future__ import annotations

import collections.abc as abc
import os
import shutil
import signal
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed
from bloomstore.errors import BloomStoreError, DamagedFile, NotAStore, StoreFailed
from bloomstore.sql.build.build_lock import only_builder
from bloomstore.sql.capture.autocommit_lock import AutocommitLock

SPEC = Fixed(capacity=100, target_error=0.01)
PRECIOUS = b"precious text of somebody\n" * 4000
SEGMENT = "segments/F1.C0.S0.N2.seg"
FILES = ["lock", "users", "catalog/data.mdb", "catalog/lock.mdb", SEGMENT]


@pytest.fixture(autouse=True)
def patience() -> abc.Iterator[None]:
    """A pipe that is waited for fails the test."""

    def give_up(*_: object) -> None:
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def victim(tmp_path: Path) -> abc.Iterator[Path]:
    """A file of somebody that nobody may change."""
    path = tmp_path / "victim"
    path.write_bytes(PRECIOUS)
    yield path
    assert path.read_bytes() == PRECIOUS


@pytest.fixture
def made(path: Path) -> Path:
    """A closed store with one filter."""
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add_many(range(50))
    return path


def assert_refused(path: Path, name: str, what: str, *, read_only: bool) -> None:
    """The store does not open, or its filter says why it answers "maybe"."""
    if name == SEGMENT:
        with bloomstore.open(path, read_only=read_only) as store:
            seen = store["seen"]
            assert seen.may_contain_many(range(-50, 50)).all()
            assert what in seen.state.reason
            assert any(what in str(problem) for problem in store.check())
            if not read_only:
                with pytest.raises(StoreFailed, match=what):
                    seen.add(1000)
        return
    with pytest.raises(DamagedFile, match=f"{name}.*{what}"):
        bloomstore.open(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_store_is_opened_through_a_link(
    made: Path, victim: Path, name: str, read_only: bool
) -> None:
    (made / name).unlink()
    (made / name).symlink_to(victim)
    assert_refused(made, name, "symbolic link", read_only=read_only)


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_the_very_file_is_refused_too(made: Path, name: str) -> None:
    elsewhere = made.parent / "elsewhere"
    (made / name).rename(elsewhere)
    before = elsewhere.read_bytes()
    (made / name).symlink_to(elsewhere)
    for read_only in (True, False):
        assert_refused(made, name, "symbolic link", read_only=read_only)
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_nothing_makes_nothing(made: Path, name: str) -> None:
    nothing = made.parent / "nothing"
    (made / name).unlink()
    (made / name).symlink_to(nothing)
    for read_only in (True, False):
        assert_refused(made, name, "symbolic link", read_only=read_only)
    assert not nothing.exists()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_nobody_waits_for_a_pipe(made: Path, name: str, read_only: bool) -> None:
    (made / name).unlink()
    os.mkfifo(made / name)
    assert_refused(made, name, "not a regular file", read_only=read_only)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_is_no_file(made: Path, name: str) -> None:
    (made / name).unlink()
    (made / name).mkdir()
    for read_only in (True, False):
        assert_refused(made, name, "not a regular file", read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("name", ["catalog", "segments"])
def test_the_folders_of_a_store_are_no_links(made: Path, name: str, read_only: bool) -> None:
    elsewhere = made.parent / "elsewhere"
    (made / name).rename(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    (made / name).symlink_to(elsewhere)
    with pytest.raises(NotAStore, match=f"{name} is a symbolic link"):
        bloomstore.open(made, read_only=read_only)
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_the_path_of_a_store_may_lead_through_links(made: Path) -> None:
    link = made.parent / "link"
    link.symlink_to(made)
    with bloomstore.open(link) as store:
        assert store["seen"].add(1000)
    with bloomstore.open(made) as store:
        assert 1000 in store["seen"]


@pytest.mark.parametrize("name", ["lock", "users", "segments", "catalog"])
def test_a_new_store_is_not_made_over_links(path: Path, victim: Path, name: str) -> None:
    for target in (victim, path.parent / "nothing", path.parent / "folder"):
        path.mkdir()
        (path.parent / "folder").mkdir(exist_ok=True)
        (path / name).symlink_to(target)
        with pytest.raises((NotAStore, DamagedFile), match=name):
            bloomstore.open(path)
        assert not (path.parent / "nothing").exists()
        assert list((path.parent / "folder").iterdir()) == []
        shutil.rmtree(path)


@pytest.mark.parametrize("name", ["lock", "users", "segments", "catalog"])
def test_a_new_store_is_not_made_over_pipes(path: Path, name: str) -> None:
    path.mkdir()
    os.mkfifo(path / name)
    with pytest.raises((NotAStore, DamagedFile), match=name):
        bloomstore.open(path)


def test_a_new_catalog_is_not_made_through_a_link(path: Path) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "letter").write_text("dear")
    path.mkdir()
    (path / f"catalog.new.{os.getpid()}").symlink_to(elsewhere)
    with pytest.raises(BloomStoreError, match=r"catalog\.new"):
        bloomstore.open(path)
    assert [found.name for found in elsewhere.iterdir()] == ["letter"]


def test_a_segment_that_became_a_link_is_not_backed_up(made: Path, victim: Path) -> None:
    (made / SEGMENT).unlink()
    (made / SEGMENT).symlink_to(victim)
    with (
        bloomstore.open(made) as store,
        pytest.raises((StoreFailed, DamagedFile), match="symbolic link"),
    ):
        store.backup(made.parent / "saved")


@pytest.mark.parametrize("name", ["../../victim", "../../victim.seg", "a\0.seg", "\ud800.seg"])
def test_a_row_that_calls_another_file_dead_removes_nothing(
    made: Path, tmp_path: Path, name: str
) -> None:
    others = [tmp_path / "victim", tmp_path / "victim.seg"]
    for other in others:
        other.write_bytes(PRECIOUS)
    with bloomstore.open(made) as store, store._core.catalog.write() as change:
        change.put_tombstone(99, name, "dropped")
    with bloomstore.open(made) as store:
        store.create("second", SPEC)
        store.drop("second")
        assert store["seen"].may_contain_many(range(50)).all()
    assert all(other.read_bytes() == PRECIOUS for other in others)


def test_the_lock_files_of_guards_are_no_links(made: Path, victim: Path) -> None:
    for name in ("sql.lock", "build.lock"):
        (made / name).symlink_to(victim)
    with pytest.raises(DamagedFile, match="symbolic link"):
        AutocommitLock(made).wait(1)
    with pytest.raises(DamagedFile, match="symbolic link"), only_builder(made):
        pass
