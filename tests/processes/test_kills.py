"""A process is killed or stopped while others use the store: they go on and nothing is lost."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Durability, Dynamic, Scalable
from bloomstore.store.write import bulk_load
from tests.processes.worker import Worker, die_at, make_store, open_server
from tests.support.checkout import ROOT
from tests.support.soundness import assert_sound

DURABILITIES = ["commit", "process"]


def hold(pipe: Connection, path: Path) -> None:
    """Takes the writer lock and keeps it until told."""
    with bloomstore.open(path) as store:
        store["commit"].add("before")
        with store._core.lock.hold():
            pipe.send("held")
            pipe.recv()
        store["commit"].add("after")
        pipe.send("added")
        pipe.recv()


def test_others_give_up_on_a_stopped_holder_and_readers_go_on(path: Path) -> None:
    make_store(path, "commit", "process")
    with (
        Worker(hold, path) as holder,
        open_server(path, read_only=True) as reader,
    ):
        assert holder.hear() == "held"
        holder.signal(signal.SIGSTOP)
        with Worker(give_up, path) as late:
            assert late.hear() == "StoreLocked"
        for number in range(20):
            assert reader.ask("in", "commit", ["before", number]) == [True, False]
        holder.signal(signal.SIGCONT)
        assert holder.ask("let go") == "added"
        with open_server(path, seconds=20) as writer:
            writer.ask("add", "commit", "next")
            writer.ask("add", "process", "next")
            assert reader.ask("in", "commit", ["before", "after", "next"]) == [True] * 3
            assert reader.ask("in", "process", ["next"]) == [True]
            assert writer.ask("end") == reader.ask("end") == "closed"
        holder.tell("end")
        assert holder.end() == 0
    assert_sound(path)


def give_up(pipe: Connection, path: Path) -> None:
    try:
        with bloomstore.open(path, lock_seconds=0.3) as store:
            store["commit"].add("late")
        pipe.send("added")
    except bloomstore.errors.StoreLocked as error:
        pipe.send(type(error).__name__)


def test_a_writer_that_was_open_before_gives_up_on_a_stopped_holder_too(path: Path) -> None:
    make_store(path, "commit", "process")
    with open_server(path, seconds=0.3) as late, Worker(hold, path) as holder:
        assert holder.hear() == "held"
        holder.signal(signal.SIGSTOP)
        assert late.ask("add", "commit", "late") == "StoreLocked"
        assert late.ask("add", "process", "late") == "StoreLocked"
        assert late.ask("in", "commit", ["before", "late"]) == [True, False]
        holder.signal(signal.SIGCONT)
        assert holder.ask("let go") == "added"
        assert late.ask("add", "commit", "late") is True
        assert late.ask("in", "commit", ["before", "after", "late"]) == [True] * 3
        assert late.ask("end") == "closed"


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize(
    "point",
    ["generation: committed", "add: journal committed", "seal: next stage published"],
)
def test_after_the_next_add_of_a_survivor_a_running_reader_sees_everything(
    path: Path, point: str, durability: Durability
) -> None:
    if durability == "process" and point.startswith("add"):
        pytest.skip("durability process has no journal")
    make_store(path, durability)
    keys = list(range(50))
    with (
        open_server(path) as reader,
        open_server(path) as writer,
        open_server(path) as victim,
    ):
        victim.ask("add many", durability, keys)
        assert all(reader.ask("find", durability, keys))
        victim.ask("die at", point)
        victim.tell("add many", durability, list(range(1000, 1200)))
        assert victim.end() == -9
        assert all(reader.ask("find", durability, keys))
        for key in range(5000, 5100):
            writer.ask("add", durability, key)
            assert reader.ask("in", durability, [key]) == [True]
        known = keys + list(range(5000, 5100))
        assert all(reader.ask("find", durability, known))
        if point == "add: journal committed":  # the part that the first stage had room for
            assert all(reader.ask("in", durability, [1000, 1001]))
        assert reader.ask("check") == []
        assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_bulk_load_that_was_killed_leaves_true_counts(path: Path, durability: Durability) -> None:
    spec = Scalable(target_error=0.01, initial_capacity=5000)
    with bloomstore.open(path) as store:
        store.create("users", spec, durability=durability).add_many(range(50))

    def load(pipe: Connection) -> None:
        bulk_load.LEAST_KEYS = 100
        users = bloomstore.open(path)["users"]
        die_at("bulk load: stage published")
        users.add_many(range(1000, 4000))

    with open_server(path) as writer:
        with Worker(load) as loader:
            assert loader.end() == -9
        writer.ask("add", "users", "next")
        assert 3000 < writer.ask("keys", "users") <= 3051
        assert writer.ask("end") == "closed"
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["users"].state.is_sound
        assert store["users"].may_contain_many(range(50)).all()
        assert "next" in store["users"]


def test_a_filter_that_counts_keys_keeps_its_error_when_its_writers_are_killed(
    path: Path,
) -> None:
    with bloomstore.open(path) as store:
        store.create("users", Dynamic(capacity=1000, target_error=0.01), durability="process")

    def add(pipe: Connection, first: int) -> None:
        users = bloomstore.open(path)["users"]
        die_at("process add: bits set")
        users.add_many(range(first, first + 950))

    for first in range(0, 5000, 1000):
        with Worker(add, first) as worker:
            assert worker.end() == -9
    with bloomstore.open(path) as store:
        users = store["users"]
        stages = len(users.stats().stages)
        wrong = users.may_contain_many(range(10**7, 10**7 + 20_000)).mean()
        assert wrong < 0.015 * stages
    assert_sound(path)


@pytest.fixture
def traced() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("system calls are traced on Linux, x86-64, only")


def kill_after_the_page_that_commits(worker: Worker, commits: int = 1) -> None:
    """Kills a process in LMDB's commit: on disk it has happened, in the shared table not yet.

    That moment is as long as a sync of the disk: the page is written through a synchronous
    descriptor, and a kill waits for it.
    """
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    trace.restype = ctypes.c_long
    peek_user, next_call, pwrite64 = 3, 24, 18
    argument, offset, number = 112, 56, 120  # rdi, r10 and orig_rax in struct user
    leaving = False
    os.waitpid(worker.process, 0)  # it has stopped itself
    while True:
        trace(next_call, worker.process, None, None)
        _, status = os.waitpid(worker.process, 0)
        assert os.WIFSTOPPED(status), "the process ended without its commit"
        if os.WSTOPSIG(status) != signal.SIGTRAP:
            continue
        leaving = not leaving
        if leaving or trace(peek_user, worker.process, number, None) != pwrite64:
            continue
        descriptor = trace(peek_user, worker.process, argument, None)
        file = Path(f"/proc/{worker.process}/fd/{descriptor}").readlink()
        is_meta_page = trace(peek_user, worker.process, offset, None) < 2 * 4096
        if file.name == "data.mdb" and is_meta_page:
            commits -= 1
            if not commits:
                worker.signal(signal.SIGKILL)
                assert worker.end() == -9
                return


def stop_to_be_traced() -> None:
    assert ctypes.CDLL(None, use_errno=True).ptrace(0, 0, None, None) == 0
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.usefixtures("traced")
def test_an_add_killed_inside_its_commit_is_finished_by_the_next_writer(path: Path) -> None:
    make_store(path, "commit")

    def add(pipe: Connection) -> None:
        users = bloomstore.open(path)["commit"]
        users.add("before")
        stop_to_be_traced()
        users.add("killed")

    with open_server(path) as writer, open_server(path, read_only=True) as reader:
        writer.ask("add many", "commit", list(range(20)))
        with Worker(add) as victim:
            kill_after_the_page_that_commits(victim)
        for key in range(100, 110):
            assert writer.ask("add", "commit", key) is True
        assert writer.ask("in", "commit", ["before", "killed"]) == [True, True]
        assert writer.ask("check") == []
        assert reader.ask("state", "commit") == "sound"
        assert all(reader.ask("find", "commit", list(range(20)) + list(range(100, 110))))
        assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["commit"].state.is_sound


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_bulk_load_killed_inside_its_commit_loses_no_key_of_others(
    path: Path, durability: Durability
) -> None:
    spec = Scalable(target_error=0.01, initial_capacity=5000)
    with bloomstore.open(path) as store:
        store.create("users", spec, durability=durability).add_many(range(50))

    def load(pipe: Connection) -> None:
        bulk_load.LEAST_KEYS = 100
        users = bloomstore.open(path)["users"]
        users.add("before")
        stop_to_be_traced()
        users.add_many(range(1000, 2000))

    keys = list(range(100, 110))
    with open_server(path) as writer:
        assert all(writer.ask("find", "users", list(range(50))))
        with Worker(load) as victim:
            kill_after_the_page_that_commits(victim, commits=2)  # tombstone, publication
        for key in keys:
            assert writer.ask("add", "users", key) is True
        assert all(writer.ask("find", "users", keys))
        assert writer.ask("check") == []
        assert writer.ask("end") == "closed"
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(keys + list(range(50))).all()
        assert store["users"].state.is_sound


@pytest.mark.usefixtures("traced")
def test_growth_killed_inside_its_commit_leaves_no_file_without_a_row(path: Path) -> None:
    make_store(path, "commit")

    def grow(pipe: Connection) -> None:
        users = bloomstore.open(path)["commit"]
        users.add("before")
        stop_to_be_traced()
        users.add_many(range(1000, 1500))

    for commits in (2, 3):  # first part, tombstone, publication
        with open_server(path) as writer:
            with Worker(grow) as victim:
                kill_after_the_page_that_commits(victim, commits)
            keys = list(range(2000 * commits, 2000 * commits + 300))
            assert writer.ask("add many", "commit", keys) > 250
            assert all(writer.ask("find", "commit", ["before", *keys]))
            assert writer.ask("end") == "closed"
        assert_sound(path)


@pytest.mark.parametrize("work", ["--rounds=8", "--damage=8", "--flips=8"])
def test_random_kills_and_damages_lose_nothing(tmp_path: Path, work: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "torture.py", work, "--seed=7", f"--keep={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "the promise was kept" in done.stdout
