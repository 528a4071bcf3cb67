"""Several processes write: nothing is lost, everything is seen at once, counts are exact."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Durability
from tests.processes.worker import SPEC, Worker, make_store, open_server
from tests.support.soundness import assert_sound

DURABILITIES = ["commit", "process"]


def add_share(pipe: Connection, path: Path, name: str, share: int, keys: int) -> None:
    """Adds its share in every way, then asks for those of all."""
    with bloomstore.open(path) as store:
        users = store[name]
        pipe.send("open")
        pipe.recv()
        mine = [share + 4 * number for number in range(keys)]
        new = 0
        while mine:
            new += users.add(mine.pop())
            many, mine = mine[:40], mine[40:]
            new += users.add_many(many)
            with store.batch():
                batch, mine = mine[:10], mine[10:]
                new += users.add_many(batch)
        pipe.send(new)
        pipe.recv()
        everything = np.arange(4 * keys)
        assert users.may_contain_many(everything).all()
        assert all(int(key) in users for key in everything[::17])
        pipe.send("found")
        pipe.recv()


@pytest.mark.parametrize("durability", DURABILITIES)
def test_four_processes_add_to_one_filter_through_growth(
    path: Path, durability: Durability
) -> None:
    make_store(path, durability)
    keys = 600
    workers = [Worker(add_share, path, durability, share, keys) for share in range(4)]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.tell("go")
    new = sum(worker.hear() for worker in workers)
    for worker in workers:
        worker.tell("all are in")
    assert [worker.hear() for worker in workers] == ["found"] * 4
    with open_server(path) as witness:
        # A key that a filter reports wrongly is not new; everything else is counted once. A batch
        # says what was new when it was collected: others may set the same bits before its end.
        assert 0 <= new - witness.ask("keys", durability) < 10
        assert 4 * keys * 0.98 < new <= 4 * keys
        assert witness.ask("check") == []
    for worker in workers:
        worker.tell("end")
        assert worker.end() == 0
    assert_sound(path)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_an_acknowledged_key_is_seen_elsewhere_at_the_very_next_lookup(
    path: Path, durability: Durability
) -> None:
    make_store(path, durability)
    with open_server(path) as writer, open_server(path) as reader:
        reader.ask("in", durability, [0])
        for key in range(0, 2000, 10):
            writer.ask("add", durability, key)
            assert reader.ask("in", durability, [key]) == [True]
            many = list(range(key + 1, key + 10))
            writer.ask("add many", durability, many)
            assert all(reader.ask("find", durability, many))
        assert all(reader.ask("find", durability, list(range(2000))))
        assert writer.ask("end") == reader.ask("end") == "closed"
    assert_sound(path)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_two_processes_take_turns_with_every_key(path: Path, durability: Durability) -> None:
    make_store(path, durability)
    with open_server(path) as one, open_server(path) as other:
        for key in range(0, 200, 2):
            one.ask("add", durability, key)
            assert other.ask("add", durability, key) is False
            other.ask("add", durability, key + 1)
            assert one.ask("in", durability, [key, key + 1]) == [True, True]
        assert one.ask("keys", durability) == other.ask("keys", durability)
        assert one.ask("end") == other.ask("end") == "closed"
    assert_sound(path)


def make_and_ensure(pipe: Connection, folder: Path, times: int, together: object) -> None:
    for number in range(times):
        together.wait()  # type: ignore[attr-defined]
        with bloomstore.open(folder / str(number)) as store:
            together.wait()  # type: ignore[attr-defined]
            users = store.ensure("users", SPEC)
            users.add(number)
            assert number in users
    pipe.send("done")


def test_two_processes_make_the_same_store_and_filter_at_the_same_moment(tmp_path: Path) -> None:
    together = multiprocessing.get_context("fork").Barrier(2, timeout=30)
    with (
        Worker(make_and_ensure, tmp_path, 20, together) as one,
        Worker(make_and_ensure, tmp_path, 20, together) as other,
    ):
        assert one.hear() == other.hear() == "done"
    for number in range(20):
        with bloomstore.open(tmp_path / str(number)) as store:
            assert number in store["users"]
            assert list(store) == ["users"]
            assert list(store.check()) == []


def test_a_batch_over_two_filters_is_seen_as_a_whole_by_another_process(path: Path) -> None:
    make_store(path, "commit", "process")

    def add(pipe: Connection) -> None:
        with bloomstore.open(path) as store:
            with store.batch():
                store["commit"].add_many(range(200))
                store["process"].add_many(range(200))
                pipe.send("inside")
                pipe.recv()
            pipe.send("done")
            pipe.recv()

    with Worker(add) as writer, open_server(path) as reader:
        assert writer.hear() == "inside"
        assert not any(reader.ask("find", "commit", list(range(200))))
        writer.tell("go on")
        assert writer.hear() == "done"
        assert all(reader.ask("find", "commit", list(range(200))))
        assert all(reader.ask("find", "process", list(range(200))))
        writer.tell("end")
        assert writer.end() == 0
        assert reader.ask("end") == "closed"
    assert_sound(path)
