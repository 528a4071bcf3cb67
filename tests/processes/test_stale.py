"""A process that cannot read the catalog: its reads answer "maybe", its writes raise."""

from __future__ import annotations

import collections.abc as abc
import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import lmdb
import numpy as np
import pytest

import bloomstore
from bloomstore import Durability, Dynamic
from bloomstore.catalog.environment import MAX_READERS
from bloomstore.catalog.rows import StageRow
from bloomstore.errors import StoreFailed
from bloomstore.keys import Key
from bloomstore.store.write import bulk_load
from tests.processes.worker import Worker
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=100, target_error=0.001)


def load(store: bloomstore.Store) -> list[int]:
    bulk_load.LEAST_KEYS = 10
    store["seen"].add_many(np.arange(100, 150))
    return list(range(100, 150))


def rebuild(store: bloomstore.Store) -> list[int]:
    with store.rebuild("seen") as coming:
        coming.add_many([1, 2])
        coming.switch()
    return [2]


def grow(store: bloomstore.Store) -> list[int]:
    for start in range(100, 400, 50):
        store["seen"].add_many(range(start, start + 50))
    return list(range(100, 400))


@contextlib.contextmanager
def reader_table_full(store: bloomstore.Store) -> abc.Iterator[None]:
    """Nobody can begin to read the catalog: other readers have every place."""

    def read_often(pipe: Connection, path: Path) -> None:
        with lmdb.open(str(path), max_dbs=10, max_readers=MAX_READERS, readonly=True) as catalog:
            readers = []
            with contextlib.suppress(lmdb.ReadersFullError):
                while True:
                    readers.append(catalog.begin())
            pipe.send("full")
            pipe.recv()
            for reader in readers:
                reader.abort()

    mine = store._core.catalog.read()  # the place that this process has already
    with mine, Worker(read_often, store._core.folder.catalog) as worker:
        assert worker.hear() == "full"
        yield
        worker.tell("end")
        assert worker.end() == 0


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("change", [load, rebuild, grow])
@pytest.mark.parametrize("many", [False, True])
def test_an_add_that_cannot_read_the_catalog_raises(
    path: Path,
    durability: Durability,
    change: abc.Callable[[bloomstore.Store], list[int]],
    many: bool,
) -> None:
    with bloomstore.open(path, durability=durability) as store:
        seen = store.create("seen", SPEC)
        seen.add(1)
        assert 1 in seen

        def work(pipe: Connection) -> None:
            with store:
                pipe.send(change(store))

        with Worker(work) as worker:
            others = worker.hear()
            assert worker.end() == 0
        with ThreadPoolExecutor(1) as pool:

            def add() -> None:
                if many:
                    seen.add_many(np.arange(1000, 1300))
                else:
                    seen.add("mine")

            with reader_table_full(store):
                with pytest.raises(StoreFailed, match="READERS_FULL"):
                    pool.submit(add).result()
                assert pool.submit(lambda: "never added" in seen).result()
            pool.submit(add).result()
        expected = [1, *others, *(range(1000, 1300) if many else ["mine"])]
        assert seen.may_contain_many(expected).all()
        assert "never added" not in seen
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["seen"].may_contain_many(expected).all()


class Failing:
    """An LMDB environment in which some reads cannot begin."""

    def __init__(self, environment: Any, failing: range) -> None:
        self._environment = environment
        self._failing = failing
        self._reads = 0

    def begin(self, *, write: bool) -> Any:
        self._reads += not write
        if not write and self._reads in self._failing:
            raise lmdb.ReadersFullError("mdb_txn_begin", -30790)
        return self._environment.begin(write=write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("change", [load, rebuild, grow])
def test_whichever_read_fails_an_acknowledged_add_is_in(
    path: Path, durability: Durability, change: abc.Callable[[bloomstore.Store], list[int]]
) -> None:
    acknowledged: list[Key] = []
    with bloomstore.open(path, durability=durability) as store:
        seen = store.create("seen", SPEC)
        seen.add_many([1, 2])
        catalog = store._core.catalog
        environment = catalog._environment
        for first, reads in itertools.product(range(1, 4), (1, 2, 4)):

            def work(pipe: Connection) -> None:
                with store:
                    pipe.send(change(store))

            with Worker(work) as worker:
                others = worker.hear()
                assert worker.end() == 0
            if change is rebuild:  # it has forgotten what its source has not
                acknowledged.clear()
            catalog._environment = cast("Any", Failing(environment, range(first, first + reads)))
            with contextlib.suppress(StoreFailed):
                seen.add(("mine", first, reads))
                acknowledged.append(("mine", first, reads))
            catalog._environment = environment
            assert seen.may_contain_many([1, *others, *acknowledged]).all()
            assert seen.state.is_sound
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["seen"].may_contain_many([1, *others, *acknowledged]).all()


def test_a_fence_that_cannot_read_the_catalog_raises(store: bloomstore.Store) -> None:
    seen = store.create("seen", SPEC)
    store.create("other", SPEC)  # the generation moves
    with (
        ThreadPoolExecutor(1) as pool,
        reader_table_full(store),
        pytest.raises(StoreFailed, match="READERS_FULL"),
    ):
        pool.submit(seen.fence, "why").result()
    assert not seen.fences


def test_a_stage_never_takes_the_place_of_another(store: bloomstore.Store) -> None:
    seen = store.create("seen", SPEC)
    core = store._core

    def stages() -> list[StageRow]:
        with core.catalog.read() as view:
            return view.stage_rows(seen.number)

    before = stages()
    with (
        pytest.raises(StoreFailed, match="stage 0 of chain 0 already"),
        core.lock.hold(),
        core.catalog.write() as change,
    ):
        change.put_stage(before[0])
    assert stages() == before
