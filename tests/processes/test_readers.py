"""A process with an old view of a filter notices everything that another one changes."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore.errors import FilterNotFound, StoreReadOnly
from tests.processes.worker import SPEC, Worker, die_at, make_store, open_server
from tests.support.soundness import assert_sound

OLD = list(range(50))
NEW = list(range(1000, 1100))


@pytest.fixture(params=[False, True], ids=["writable", "read only"])
def reader(path: Path, request: pytest.FixtureRequest) -> object:
    """A process that has asked the filter before anything changed."""
    make_store(path, "commit")
    with open_server(path) as writer:
        writer.ask("add many", "commit", OLD)
        assert writer.ask("end") == "closed"
    with open_server(path, read_only=request.param) as server:
        assert all(server.ask("find", "commit", OLD))
        assert server.ask("in", "commit", ["nobody"]) == [False]
        yield server
        assert server.ask("end") == "closed"
    assert_sound(path)


def test_growth_is_noticed(path: Path, reader: Worker) -> None:
    with bloomstore.open(path) as store:
        store["commit"].add_many(range(5000))
    assert all(reader.ask("in", "commit", list(range(0, 5000, 50))))
    assert all(reader.ask("find", "commit", list(range(5000))))


def test_a_drop_and_a_new_filter_of_the_same_name_are_noticed(path: Path) -> None:
    make_store(path, "commit")

    def watch(pipe: Connection) -> None:
        with bloomstore.open(path, read_only=True) as store:
            handle = store["commit"]
            pipe.send(1 in handle)
            pipe.recv()
            for ask in (lambda: 1 in handle, lambda: handle.may_contain_many([1]), handle.stats):
                with pytest.raises(FilterNotFound):
                    ask()
            pipe.send("not found")
            pipe.recv()
            with pytest.raises(FilterNotFound):  # an old handle is not the new filter
                1 in handle  # noqa: B015
            pipe.send([1 in store["commit"], 2 in store["commit"]])

    with Worker(watch) as watcher, bloomstore.open(path) as store:
        assert watcher.hear() is False
        store["commit"].add(1)
        store.drop("commit")
        assert watcher.ask("dropped") == "not found"
        store.create("commit", SPEC).add(2)
        assert watcher.ask("made again") == [False, True]
    assert_sound(path)


def test_a_fence_is_noticed_and_so_is_its_end(path: Path, reader: Worker) -> None:
    with bloomstore.open(path) as store:
        token = store["commit"].fence("a test")
        assert reader.ask("in", "commit", ["nobody"]) == [True]
        assert reader.ask("state", "commit") == "fenced"
        store["commit"].unfence(token)
        assert reader.ask("in", "commit", ["nobody"]) == [False]


def test_the_switch_of_a_rebuild_is_noticed(path: Path, reader: Worker) -> None:
    with bloomstore.open(path) as store, store.rebuild("commit") as new:
        new.add_many(NEW)
        store["commit"].add("meanwhile")
        assert reader.ask("in", "commit", ["meanwhile"]) == [True]
        assert reader.ask("in", "commit", OLD[:5]) == [True] * 5
        new.switch()
        assert all(reader.ask("in", "commit", [*NEW, "meanwhile"]))
        assert sum(reader.ask("find", "commit", OLD)) < 5


def test_a_read_only_process_beside_a_writer_sees_every_key_and_changes_nothing(
    path: Path,
) -> None:
    make_store(path, "commit", "process")
    with open_server(path) as writer, open_server(path, read_only=True) as reader:
        for key in range(150):
            for name in ("commit", "process"):
                writer.ask("add", name, key)
                assert reader.ask("in", name, [key]) == [True]
        assert reader.ask("add", "commit", "x") == StoreReadOnly.__name__
        assert reader.ask("checkpoint") == StoreReadOnly.__name__
        assert reader.ask("state", "commit") == reader.ask("state", "process") == "sound"
        assert reader.ask("in", "commit", ["nobody"]) == [False]
        assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)


@pytest.mark.parametrize("cure", ["opening", "adding"])
def test_a_read_only_process_answers_maybe_until_a_writer_has_recovered(
    path: Path, cure: str
) -> None:
    make_store(path, "commit")

    def add_and_die(pipe: Connection) -> None:
        users = bloomstore.open(path)["commit"]
        users.add_many(OLD)
        die_at("add: journal committed")
        users.add_many(NEW[:5])  # fits into the first stage, so it is one part

    with Worker(add_and_die) as writer:
        assert writer.end() == -9
    with open_server(path, read_only=True) as reader:
        assert reader.ask("state", "commit") == "needs recovery"
        assert all(reader.ask("find", "commit", OLD + NEW[:5]))
        assert reader.ask("in", "commit", ["nobody"]) == [True]
        with open_server(path) as writer:
            if cure == "adding":
                writer.ask("add", "commit", "next")
            assert reader.ask("state", "commit") == "sound"
            assert reader.ask("in", "commit", ["nobody"]) == [False]
            assert all(reader.ask("find", "commit", OLD + NEW[:5]))
            assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)


def test_a_read_only_process_stays_useful_while_a_writer_grows(path: Path) -> None:
    make_store(path, "commit")
    with open_server(path) as writer, open_server(path, read_only=True) as reader:
        for first in range(0, 3000, 150):
            writer.ask("add many", "commit", list(range(first, first + 150)))
            assert reader.ask("state", "commit") == "sound"
        asked = np.arange(10**6, 10**6 + 2000).tolist()
        assert sum(reader.ask("find", "commit", asked)) < 80
        assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)
