"""Threads and tasks share a store: batches belong to their owner, and closing is orderly."""

from __future__ import annotations

import asyncio
import collections.abc as abc
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import bloomstore
from bloomstore import Durability, Fixed, Scalable
from bloomstore.errors import FilterFull, StoreClosed
from bloomstore.keys import fingerprints
from bloomstore.store.durable.holding import holding
from bloomstore.store.write import group_commit
from tests.processes.worker import SPEC
from tests.support.soundness import assert_sound

DURABILITIES = ["commit", "process"]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_eight_threads_add_and_ask(path: Path, durability: Durability) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC, durability=durability)
        together = threading.Barrier(8, timeout=30)

        def work(number: int) -> int:
            together.wait()
            new = 0
            for key in range(60):
                new += users.add((number, key))
                assert (number, key) in users
                many = [(number, "many", key, part) for part in range(5)]
                new += users.add_many(many)
                assert users.may_contain_many(many).all()
            return new

        with ThreadPoolExecutor(8) as pool:
            new = sum(pool.map(work, range(8)))
        for number in range(8):
            assert users.may_contain_many([(number, key) for key in range(60)]).all()
        assert users.stats().keys <= new <= 8 * 60 * 6
        assert new - users.stats().keys < 0.02 * new  # two threads may both call a key new
        assert [str(problem) for problem in store.check()] == []
    assert_sound(path)


def test_batches_of_threads_are_isolated(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        inside = threading.Barrier(8, timeout=30)
        looked = threading.Barrier(8, timeout=30)

        def work(number: int) -> None:
            with store.batch():
                assert users.add(("batch", number))
                inside.wait()
                others = [("batch", other) for other in range(8) if other != number]
                assert ("batch", number) in users
                assert not users.may_contain_many(others).any()
                looked.wait()
            assert ("batch", number) in users

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert users.may_contain_many([("batch", number) for number in range(8)]).all()
    assert_sound(path)


def test_a_batch_that_fails_discards_only_its_own_keys(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)

        def fail() -> None:
            with pytest.raises(ZeroDivisionError), store.batch():
                users.add("discarded")
                raise ZeroDivisionError

        with store.batch():
            users.add("kept")
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
        assert "kept" in users
        assert "discarded" not in users
    assert_sound(path)


def test_a_batch_belongs_to_its_task(path: Path) -> None:
    async def main(store: bloomstore.Store, users: bloomstore.Filter) -> None:
        entered, looked = asyncio.Event(), asyncio.Event()

        async def one() -> None:
            with store.batch():
                users.add("one")
                entered.set()
                await looked.wait()
                assert "one" in users
                assert "other" in users

        async def other() -> None:
            await entered.wait()
            assert "one" not in users
            assert users.add("other")  # at once: no batch of this task is open
            assert "other" in users
            looked.set()

        await asyncio.gather(one(), other())
        assert "one" in users

    with bloomstore.open(path) as store:
        asyncio.run(main(store, store.create("users", SPEC)))
    assert_sound(path)


def test_a_task_born_in_a_batch_does_not_add_to_it(path: Path) -> None:
    async def main(store: bloomstore.Store, users: bloomstore.Filter) -> None:
        go = asyncio.Event()

        async def child() -> bool:
            await go.wait()
            return users.add("of the child")

        with store.batch():
            task = asyncio.create_task(child())

        async def another() -> None:
            with store.batch():
                go.set()
                assert await task
                assert "of the child" in users

        await asyncio.create_task(another())

    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        asyncio.run(main(store, users))
        assert "of the child" in users
    with bloomstore.open(path) as store:
        assert "of the child" in store["users"]


Use = abc.Callable[[bloomstore.Store, bloomstore.Filter, int], object]
USES: dict[str, Use] = {
    "in": lambda store, users, turn: turn in users,
    "find": lambda store, users, turn: users.may_contain_many(range(2000)),
    "add": lambda store, users, turn: users.add((threading.get_ident(), turn)),
    "add many": lambda store, users, turn: users.add_many([(turn, part) for part in range(50)]),
    "stats": lambda store, users, turn: (users.stats(), users.state, list(store), len(store)),
    "check": lambda store, users, turn: list(store.check()),
    "checkpoint": lambda store, users, turn: store.checkpoint(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_threads_whose_store_is_closed_get_a_result_or_store_closed(
    path: Path, durability: Durability, use: str
) -> None:
    for _ in range(4):
        store = bloomstore.open(path)
        users = store.ensure("users", SPEC, durability=durability)
        running = threading.Barrier(5, timeout=30)

        def work(
            store: bloomstore.Store = store,
            users: bloomstore.Filter = users,
            running: threading.Barrier = running,
        ) -> None:
            for turn in range(10**9):
                if turn == 3:
                    running.wait()
                try:
                    USES[use](store, users, turn)
                except StoreClosed:
                    return

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(work) for _ in range(4)]
            running.wait()
            store.close()
            for future in futures:
                future.result(timeout=30)
    assert_sound(path)


def test_an_interrupted_thread_takes_only_its_own_add_with_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        real = group_commit._add_all

        def interrupted(*arguments: object) -> None:
            raise KeyboardInterrupt

        with ThreadPoolExecutor(1) as pool:
            with store._core.lock.threads():
                other = pool.submit(users.add, "of the other thread")
                while not store._group._requests:
                    pass
                monkeypatch.setattr(group_commit, "_add_all", interrupted)
                mine = group_commit.Request(store._group, users._current, fingerprints(["mine"]))
                with mine, pytest.raises(KeyboardInterrupt), holding(store._core):
                    store._group._serve(store._core, mine)
                monkeypatch.setattr(group_commit, "_add_all", real)
            assert other.result(timeout=30) is True
        assert "of the other thread" in users
        assert users.add("next") is True
    assert_sound(path)


def test_a_full_filter_of_one_thread_changes_nothing_for_another(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", SPEC)
        full = store.create("full", Fixed(capacity=10, target_error=0.01), durability="process")
        with pytest.raises(FilterFull):
            full.add_many(range(1000))
        new = next(key for key in range(10**6, 10**7) if key not in full)
        with ThreadPoolExecutor(2) as pool:
            with store._core.lock.threads():
                one = pool.submit(users.add, "fresh")
                other = pool.submit(full.add, new)
                while len(store._group._requests) < 2:
                    pass
            assert one.result(timeout=30) is True
            with pytest.raises(FilterFull):
                other.result(timeout=30)
        assert "fresh" in users


def test_a_batch_during_a_rebuild_keeps_every_key(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", Scalable(target_error=0.01, initial_capacity=1000))
        users.add("deleted and added again")
        with store.rebuild("users") as new:
            new.add_many(["other"])
            with store.batch():
                users.add("deleted and added again")
            new.switch()
        assert "deleted and added again" in users
    assert_sound(path)


def test_a_rebuild_that_begins_inside_a_batch_gets_its_keys(path: Path) -> None:
    with bloomstore.open(path) as store:
        users = store.create("users", Scalable(target_error=0.01, initial_capacity=1000))
        users.add("known")
        with ThreadPoolExecutor(1) as pool:
            with store.batch():
                users.add("known")
                rebuild = store.rebuild("users")
                new = pool.submit(rebuild.__enter__).result(timeout=30)
                pool.submit(new.add_many, ["other"]).result(timeout=30)
            pool.submit(new.switch).result(timeout=30)
            pool.submit(rebuild.__exit__, None, None, None).result(timeout=30)
        assert "known" in users
        assert "other" in users
    assert_sound(path)


@pytest.mark.parametrize("seconds", [float("inf"), 1e11, 0.0])
def test_any_number_of_seconds_is_a_good_patience(path: Path, seconds: float) -> None:
    with bloomstore.open(path, lock_seconds=seconds) as store:
        assert store.create("users", SPEC).add(1)
    assert_sound(path)


def test_who_is_told_of_a_fence_may_wait_for_another_thread(store: bloomstore.Store) -> None:
    store.create("seen", SPEC)
    seen, same = store["seen"], store["seen"]
    answers = []

    class Asks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            asking = threading.Thread(target=lambda: answers.append("b" in same), daemon=True)
            asking.start()
            asking.join(10)

    handler = Asks()
    logging.getLogger("bloomstore").addHandler(handler)
    try:
        seen.fence("for a test")
        assert "a" in seen
    finally:
        logging.getLogger("bloomstore").removeHandler(handler)
    assert answers
    assert all(answers)


def test_an_add_that_meets_the_close_of_another_thread_says_that_it_is_closed(path: Path) -> None:
    store = bloomstore.open(path)
    users = store.create("users", SPEC)
    users.add("before")
    lock = store._core.lock

    class Closing:
        """The lock between threads, which another thread takes first, to close the store."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def acquire(self, *args: object, **options: object) -> bool:
            lock._threads = self._real
            closing = threading.Thread(target=store.close)
            closing.start()
            closing.join(30)
            return bool(self._real.acquire(*args, **options))

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    lock._threads = cast("Any", Closing(lock._threads))
    with pytest.raises(StoreClosed):
        users.add("after")
    assert_sound(path)


def test_a_read_inside_of_another_one_does_not_wait_for_who_opens_the_catalog_anew(
    store: bloomstore.Store,
) -> None:
    catalog = store._core.catalog

    def read() -> int:
        with catalog.read() as view:
            return view.counters().next_number

    def read_twice() -> int:
        with catalog.read():
            catalog.is_spent = True
            renewing = pool.submit(read)
            while not catalog.gate.is_shut:
                time.sleep(0.001)
            inner = read()  # as in a signal handler
        return max(inner, renewing.result(timeout=30))

    pool = ThreadPoolExecutor(1)
    done: list[int] = []
    reading = threading.Thread(target=lambda: done.append(read_twice()), daemon=True)
    reading.start()
    reading.join(10)
    assert done, "both threads wait for each other"
    pool.shutdown()
    assert not catalog.is_spent
