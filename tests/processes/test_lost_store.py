"""A store is removed, moved or replaced while it is open: nobody goes on blindly."""

from __future__ import annotations

import collections.abc as abc
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.catalog.rows import Durability
from bloomstore.errors import StoreFailed
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.01, initial_capacity=100)


def remove(path: Path) -> None:
    shutil.rmtree(path)


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def replace(path: Path) -> None:
    """Another store with the same filters is made in its place, by another process."""
    move(path)
    make = (
        "import bloomstore, sys; s = bloomstore.open(sys.argv[1]);"
        "s.create('seen', bloomstore.Scalable(target_error=0.01, initial_capacity=100)); s.close()"
    )
    subprocess.run([sys.executable, "-c", make, str(path)], check=True)


def replace_catalog(path: Path) -> None:
    """As somebody does who restores a backup of the catalog alone."""
    copy = path.with_name("copy")
    shutil.copytree(path / "catalog", copy)
    (path / "catalog").rename(path.with_name("old catalog"))
    copy.rename(path / "catalog")


def put_back_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    shutil.rmtree(path)
    copy.rename(path)


def replace_data(path: Path) -> None:
    """The file of the catalog alone, in its own folder."""
    copy = path / "catalog" / "copy"
    shutil.copy(path / "catalog" / "data.mdb", copy)
    copy.rename(path / "catalog" / "data.mdb")


LOSSES = [remove, move, replace, replace_catalog, replace_data, put_back_a_copy]
Loss = abc.Callable[[Path], None]


def until(what: abc.Callable[[], bool]) -> None:
    """Waits for something that a thread does twice a second."""
    ends = time.monotonic() + 20
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.01)


def contents(path: Path) -> dict[str, bytes]:
    """Every byte of a store but the words and readers of those who have it open."""
    return {
        str(found.relative_to(path)): found.read_bytes()
        for found in path.rglob("*")
        if found.is_file() and found.name not in ("lock", "lock.mdb")
    }


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("lose", LOSSES)
def test_every_change_of_a_lost_store_raises_at_once(
    path: Path, lose: Loss, durability: Durability
) -> None:
    store = bloomstore.open(path, durability=durability)
    seen = store.create("seen", SPEC)
    other = store.create("other", SPEC)
    seen.add_many(range(50))
    time.sleep(0.2)  # a lock that was kept is given back, and the folder's time is believed
    seen.add("one more")
    time.sleep(0.2)
    lose(path)
    before = contents(path) if path.exists() else {}
    changes: list[abc.Callable[[], object]] = [
        lambda: seen.add("new"),
        lambda: seen.add_many(range(1000, 2000)),
        lambda: other.add_many(range(10)),
        lambda: store.create("more", SPEC),
        lambda: store.drop("other"),
        lambda: seen.fence("why"),
        lambda: store.checkpoint(),
        lambda: store.notes.__setitem__("a", b"b"),
        lambda: store.backup(path.with_name("saved")),
        lambda: list(store.repair()),
    ]
    for change in changes:
        with pytest.raises(StoreFailed, match="while it was open"):
            change()
    with pytest.raises(StoreFailed, match="while it was open"), store.batch():
        seen.add("another")
    assert "while it was open" in str(next(iter(store.check())))
    store.close()
    assert (contents(path) if path.exists() else {}) == before


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("lose", LOSSES)
def test_lookups_in_a_lost_store_answer_maybe_within_a_second(
    path: Path, lose: Loss, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add_many(range(50))
    store = bloomstore.open(path, read_only=read_only)
    seen = store["seen"]
    assert "bob" not in seen
    lose(path)
    with caplog.at_level(logging.ERROR, "bloomstore"):
        until(lambda: "bob" in seen)
    assert seen.may_contain_many(["bob", "eve"]).all()
    assert "while it was open" in seen.state.reason
    assert not seen.was_sound
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) <= 1
    store.close()


@pytest.mark.parametrize("lose", [replace, put_back_a_copy])
def test_open_gives_the_new_store_beside_the_lost_one(path: Path, lose: Loss) -> None:
    old = bloomstore.open(path)
    old.create("seen", SPEC).add("alice")
    lose(path)
    with bloomstore.open(path) as new:
        assert new is not old
        assert new["seen"].add("bob")
        with pytest.raises(StoreFailed, match="while it was open"):
            old["seen"].add("carol")
        old.close()
        assert new["seen"].add("dave")
        assert "bob" in new["seen"]
    assert_sound(path)


def test_a_new_store_of_the_same_process_is_another_one(path: Path) -> None:
    old = bloomstore.open(path)
    old.create("seen", SPEC).add("alice")
    shutil.rmtree(path)
    with bloomstore.open(path) as new:
        assert new is not old
        assert list(new) == []
        old.close()
        new.create("seen", SPEC)
    assert_sound(path)


def test_a_moved_store_cannot_be_opened_twice(path: Path) -> None:
    old = bloomstore.open(path)
    old.create("seen", SPEC).add("alice")
    move(path)
    moved = path.with_name("moved")
    with pytest.raises(StoreFailed, match=r"is open in this process as .*; close that one first"):
        bloomstore.open(moved)
    old.close()
    with bloomstore.open(moved) as store:
        assert "alice" in store["seen"]
    assert_sound(moved)


def test_a_kept_lock_is_given_back_when_the_store_is_lost(path: Path) -> None:
    """Single adds of durability `process` make no call: they notice within some milliseconds."""
    store = bloomstore.open(path, durability="process")
    seen = store.create("seen", Fixed(capacity=10_000_000, target_error=0.01))
    seen.add("alice")
    move(path)
    keys = iter(range(10_000_000))

    def is_refused() -> bool:
        try:
            for _ in range(100):
                seen.add(next(keys))
        except StoreFailed as error:
            return "while it was open" in str(error)
        return False

    until(is_refused)
    store.close()


def test_a_forked_child_does_not_take_the_new_store_for_the_old_one(path: Path) -> None:
    store = bloomstore.open(path)
    seen = store.create("seen", SPEC)
    seen.add_many(range(50))
    replace(path)
    child = os.fork()
    if not child:
        status = 1
        try:
            seen.add("carol")
        except StoreFailed:
            status = 0 if "bob" in seen else 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


def test_the_watch_begins_with_the_first_store_and_ends_with_the_last(tmp_path: Path) -> None:
    def watches() -> int:
        return sum(thread.name == "bloomstore-watch" for thread in threading.enumerate())

    assert watches() == 0
    with bloomstore.open(tmp_path / "a") as a:
        with bloomstore.open(tmp_path / "b"):
            assert watches() == 1
        assert watches() == 1
        child = os.fork()
        if not child:
            before = watches()
            assert len(a) == 0
            os._exit(0 if (before, watches()) == (0, 1) else 1)
        assert watches() == 1
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watches() == 0


FORKING = """
import os, sys, threading
found = []
os.register_at_fork(before=lambda: found.append(len(os.listdir("/proc/self/task"))))
import bloomstore
store = bloomstore.open(sys.argv[1])
for _ in range(50):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert [thread.name for thread in threading.enumerate()][1:] == ["bloomstore-watch"]
assert set(found) == {1}, found
"""


def test_no_thread_is_there_at_the_moment_of_a_fork(path: Path) -> None:
    """Python warns of forks of processes with threads, from 3.12 on."""
    command = [sys.executable, "-W", "error", "-c", FORKING, str(path)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_program_that_forgets_to_close_ends(path: Path) -> None:
    code = "import bloomstore, sys; bloomstore.open(sys.argv[1]); print('end')"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")
