"""A process that has a store open forks: both go on, and neither disturbs the other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Durability
from tests.processes.worker import SPEC, Worker, die_at, make_store, open_server
from tests.support.soundness import assert_sound

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")

DURABILITIES = ["commit", "process"]


def in_a_child(work: object, *arguments: object) -> None:
    """Forks, does it in the child, and fails with it."""

    def run(pipe: Connection) -> None:
        work(*arguments)  # type: ignore[operator]
        pipe.send("done")

    with Worker(run) as worker:
        assert worker.hear() == "done"
        assert worker.end() == 0


@pytest.mark.parametrize("durability", DURABILITIES)
def test_children_of_a_preloaded_parent_read_and_add(path: Path, durability: Durability) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC, durability=durability)
        users.add_many(range(100))
        assert 1 in users

        def child(number: int) -> None:
            assert users.may_contain_many(range(100)).all()
            assert all(key in users for key in range(100))
            for key in range(50):
                users.add((number, key))
            assert users.add_many([(number, key) for key in range(40, 150)]) >= 95

        for number in range(3):
            in_a_child(child, number)
            assert users.may_contain_many([(number, key) for key in range(150)]).all()
            assert all((number, key) in users for key in range(150))
            users.add(("parent", number))
            assert ("parent", number) in users
    assert_sound(path)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_children_add_at_the_same_time_as_their_parent(path: Path, durability: Durability) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC, durability=durability)
        users.add(0)

        def child(pipe: Connection, number: int) -> None:
            for key in range(100):
                users.add((number, key))
            pipe.send("done")

        workers = [Worker(child, number) for number in range(3)]
        for key in range(100):
            users.add(("parent", key))
        for worker in workers:
            assert worker.hear() == "done"
            assert worker.end() == 0
        for who in (0, 1, 2, "parent"):
            assert users.may_contain_many([(who, key) for key in range(100)]).all()
    assert_sound(path)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_fork_while_another_thread_adds_does_no_harm(path: Path, durability: Durability) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC, durability=durability)
        added = 0
        is_over = threading.Event()

        def add() -> None:
            nonlocal added
            while not is_over.is_set():
                users.add(("thread", added))
                added += 1

        thread = threading.Thread(target=add)
        thread.start()

        def child(number: int) -> None:
            known = added
            assert users.may_contain_many([("thread", key) for key in range(known)]).all()
            users.add_many([(number, key) for key in range(30)])
            assert (number, 29) in users

        try:
            for number in range(8):
                in_a_child(child, number)
                assert users.may_contain_many([(number, key) for key in range(30)]).all()
        finally:
            is_over.set()
            thread.join()
        assert users.may_contain_many([("thread", key) for key in range(added)]).all()
    assert_sound(path)


def test_grandchildren_and_their_parents_all_go_on(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        users.add("parent")

        def grandchild() -> None:
            assert "parent" in users
            assert "child" in users
            users.add("grandchild")

        def child() -> None:
            users.add("child")
            in_a_child(grandchild)
            assert "grandchild" in users
            users.add("child again")

        def child_that_never_used_it() -> None:
            in_a_child(lambda: users.add("grandchild of an idle child"))

        in_a_child(child)
        in_a_child(child_that_never_used_it)
        for key in ("child", "grandchild", "child again", "grandchild of an idle child"):
            assert key in users
    assert_sound(path)


def test_multiprocessing_with_fork_shares_the_store(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        users.add("parent")

        def add(number: int) -> None:
            assert "parent" in users
            users.add_many(range(100 * number, 100 * number + 100))

        context = multiprocessing.get_context("fork")
        children = [context.Process(target=add, args=(number,)) for number in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        assert users.may_contain_many(range(400)).all()
    assert_sound(path)


@pytest.mark.parametrize("how", ["exits", "closes", "is killed"])
def test_the_end_of_a_child_does_not_disturb_its_parent(path: Path, how: str) -> None:
    make_store(path, "process")
    with open_server(path, seconds=0.2) as other, bloomstore.open(path) as store:
        users = store["process"]
        users.add("before")

        def child(pipe: Connection) -> None:
            users.add("child")
            if how == "closes":
                store.close()
                store.close()
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)

        with store._core.lock.hold(), Worker(lambda pipe: store.close()) as idle:
            assert idle.end() == 0
            assert other.ask("add", "process", "x") == "StoreLocked"  # it is still the parent's
        with Worker(child) as worker:
            assert worker.end() == (-9 if how == "is killed" else 0)
        assert "child" in users
        users.add("after")
        assert "after" in users
        assert store["process"] is users
        assert other.ask("end") == "closed"
    assert_sound(path)


def test_a_child_that_closes_leaves_the_files_of_the_program_alone(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("users", SPEC).add(1)

        def child() -> None:
            files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
            store.close()
            for file in files:
                os.fstat(file)

        def child_that_forks() -> None:
            files = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
            in_a_child(lambda: [os.fstat(file) for file in files])

        in_a_child(child)
        in_a_child(child_that_forks)
    assert_sound(path)


@pytest.mark.parametrize("child_uses_it", [False, True])
@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_lock_of_a_dead_parent_is_free_although_a_child_lives(
    path: Path, durability: Durability, child_uses_it: bool
) -> None:
    make_store(path, durability)

    to_child, of_child = multiprocessing.Pipe()

    def child(users: bloomstore.Filter) -> None:
        signal.alarm(60)  # its parent dies, so nobody else would end it
        if child_uses_it:
            users.add("child")
        of_child.send("alive")
        of_child.recv()
        assert "second" in users
        of_child.send("seen")

    def parent(pipe: Connection) -> None:
        users = bloomstore.open(path)[durability]
        users.add("first")
        if not os.fork():
            try:
                child(users)
            finally:
                os._exit(0)
        pipe.recv()
        die_at("add: journal committed" if durability == "commit" else "process add: bits set")
        users.add_many(["doomed"])

    with Worker(parent) as worker:
        assert to_child.poll(30)
        assert to_child.recv() == "alive"
        worker.tell("die")
        assert worker.end() == -9
        with open_server(path, seconds=5) as other:
            assert other.ask("add", durability, "second") is True
            to_child.send("go on")
            assert to_child.poll(30)
            assert to_child.recv() == "seen"
            assert other.ask("end") == "closed"
        assert_sound(path)


def test_a_child_forked_inside_a_batch_adds_by_itself(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)

        def child() -> None:
            assert "parent" not in users
            assert users.add("child")
            assert "child" in users

        with store.batch():
            users.add("parent")
            in_a_child(child)
        assert "parent" in users
        assert "child" in users
    assert_sound(path)


def test_a_parent_that_never_closed_leaves_nothing_behind(path: Path) -> None:
    make_store(path, "commit", "process")

    def parent(pipe: Connection) -> None:
        store = bloomstore.open(path)
        for name in ("commit", "process"):
            store[name].add_many(range(100))
        in_a_child(lambda: store["process"].add_many(range(100, 200)))
        os._exit(0)

    with Worker(parent) as worker:
        assert worker.end() == 0
    with bloomstore.open(path) as store:
        assert store["commit"].may_contain_many(range(100)).all()
        assert store["process"].may_contain_many(range(200)).all()
    assert_sound(path)
