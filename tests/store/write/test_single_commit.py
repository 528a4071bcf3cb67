"""The short way of a durable add leaves what the general one leaves, or steps aside."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomstore
from bloomstore import FilterSpec, Fixed, Scalable, kernels
from bloomstore.catalog.catalog import Catalog
from bloomstore.errors import FilterFull, StoreFailed, StoreLocked
from bloomstore.store.process.words import APPLIED, APPLYING, GENERATION
from bloomstore.store.write import coming_chain, single_commit

SPECS: list[FilterSpec] = [
    Fixed(capacity=3000, target_error=0.01),
    Scalable(target_error=0.01, initial_capacity=100),
    Scalable(target_error=0.01, initial_capacity=100, layout="sliced"),
    Scalable(target_error=0.001, initial_capacity=64, layout="sliced", scheme="h3"),
]


def after_adds(path: Path, spec: FilterSpec) -> list[object]:
    """What single and many adds return, and what they leave."""
    rng = np.random.default_rng(3)
    left: list[object] = []
    with bloomstore.open(path) as store:
        seen = store.create("seen", spec)
        for turn in range(60):
            left.append(seen.add(int(rng.integers(0, 500))))
            left.append(seen.add(f"name {rng.integers(0, 500)}"))
            if turn % 7 == 0:
                left.append(seen.add_many(rng.integers(0, 900, 40)))
            if turn == 40:
                store.checkpoint()
        with store._core.catalog.read() as view:
            left += [(*row[:-1], row.prints.tolist()) for row in view.journal()]
        left.append([bytes(vector) for vector in seen._current().live.vectors])
        stats = seen.stats()
        left.append((stats.keys, [stage.fill for stage in stats.stages]))
    return left


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_both_ways_leave_the_same(
    tmp_path: Path, spec: FilterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    real = single_commit.add

    def counted(*arguments: object) -> int | None:
        taken.append(real(*arguments))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(single_commit, "add", counted)
    short = after_adds(tmp_path / "short", spec)
    assert sum(added is not None for added in taken) > 80
    monkeypatch.setattr(single_commit, "add", lambda *_: None)
    assert after_adds(tmp_path / "general", spec) == short


Batches = list[list[tuple[int, list[int]]]]
batches = st.lists(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 60), min_size=1, max_size=12)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


def after_batches(path: Path, wanted: Batches) -> list[object]:
    """What adds inside batches over several filters return, and what the batches leave."""
    left: list[object] = []
    with bloomstore.open(path) as store:
        filters = [store.create(f"filter {place}", spec) for place, spec in enumerate(SPECS[:3])]
        for batch in wanted:
            with store.batch():
                for place, keys in batch:
                    left.append(filters[place].add_many(keys))
            for place, keys in batch:
                assert filters[place].may_contain_many(keys).all()
        with store._core.catalog.read() as view:
            left += [(*row[:-1], row.prints.tolist()) for row in view.journal()]
        for users in filters:
            left.append([bytes(vector) for vector in users._current().live.vectors])
            left.append(users.stats().keys)
    return left


@settings(max_examples=25, deadline=None)
@given(wanted=batches)
def test_batches_leave_the_same_both_ways(wanted: Batches) -> None:
    with tempfile.TemporaryDirectory() as folder:
        short = after_batches(Path(folder) / "short", wanted)
        with mock.patch.object(single_commit, "add", return_value=None):
            assert after_batches(Path(folder) / "general", wanted) == short


@pytest.mark.parametrize("filters", [1, 2, 3])
def test_a_batch_is_one_transaction_of_lmdb_however_many_filters(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch, filters: int
) -> None:
    handles = [store.create(f"filter {place}", SPECS[0]) for place in range(filters)]
    for users in handles:
        users.add("first")
    begun: list[bool] = []
    real = Catalog.begin

    def begin(self: Catalog, *, write: bool) -> object:
        begun.append(write)
        return real(self, write=write)

    monkeypatch.setattr(Catalog, "begin", begin)
    with store.batch():
        for users in handles:
            assert users.add_many(["second", "third"]) == 2
    assert begun == [True]
    monkeypatch.undo()
    assert all(users.may_contain_many(["second", "third"]).all() for users in handles)
    with store._core.catalog.read() as view:
        assert len(list(view.journal())) == 2 * filters


def test_a_batch_with_something_out_of_the_ordinary_takes_the_general_way(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = store.create("users", SPECS[0])
    small = store.create("small", Scalable(target_error=0.01, initial_capacity=64))
    quick = store.create("quick", SPECS[0], durability="process")
    fenced = store.create("fenced", SPECS[0])
    fenced.fence("not filled yet")
    outcomes: list[int | None] = []
    real = single_commit.add

    def counted(*arguments: object) -> int | None:
        outcomes.append(real(*arguments))  # type: ignore[arg-type]
        return outcomes[-1]

    monkeypatch.setattr(single_commit, "add", counted)
    for other, keys in ((small, range(300)), (quick, range(9)), (fenced, range(9))):
        for handle in (users, other):
            handle.add("first")
        outcomes.clear()
        with store.batch():
            users.add(f"with {other.name}")
            other.add_many(keys)
        assert outcomes in ([], [None])
        assert f"with {other.name}" in users
        assert other.may_contain_many(keys).all()


def test_a_rebuild_that_begins_inside_a_batch_gets_its_keys_too(
    store: bloomstore.Store,
) -> None:
    users, others = (store.create(name, SPECS[0]) for name in ("users", "others"))
    for handle in (users, others):
        handle.add("first")
    with store.batch():
        users.add("into both chains")
        others.add("beside")
        with ThreadPoolExecutor() as pool:  # another thread: no rebuild can begin in a batch
            coming = pool.submit(coming_chain.begin, store, "users", None).result()
    coming.switch()
    assert "into both chains" in users
    assert "first" not in users
    assert "beside" in others


@pytest.mark.parametrize("word", [APPLIED, APPLYING, GENERATION])
def test_words_that_a_dead_holder_left_are_finished_first(
    store: bloomstore.Store, word: int
) -> None:
    users = store.create("users", SPECS[1])
    users.add_many(range(50))
    view, core = users._current(), store._core
    prints = np.array([[1, 2]], np.uint64)
    number = view.live.newest.row.number
    core.words[word] = number if word == APPLYING else core.words[word] - 1
    assert single_commit.add(core, [(view, prints)]) is None
    assert users.add("next")
    assert core.words[APPLYING] == 0
    assert single_commit.add(core, [(users._current(), prints)]) == 1
    assert users.may_contain_many(range(50)).all()


def test_a_commit_of_somebody_else_is_noticed(store: bloomstore.Store) -> None:
    users = store.create("users", SPECS[1])
    others = store.create("others", SPECS[1])
    users.add_many(range(10))
    users.add("one")
    view, core = users._current(), store._core
    last = core.last_commit
    assert last is not None
    store.notes["a"] = b"note"
    core.last_commit = last[0], (last[1][0] - 1, last[1][1])  # what it holds must not be believed
    assert single_commit.add(core, [(view, np.array([[1, 2]], np.uint64))]) == 1
    assert core.last_commit[1][0] == core.words[APPLIED] == last[1][0] + 1
    assert others.add("two")
    assert users.add("three")
    assert users.stats().keys == 13


def test_it_does_not_wait_for_the_lock(store: bloomstore.Store) -> None:
    users = store.create("users", SPECS[1])
    users.add("first")
    prints = np.array([[1, 2]], np.uint64)
    with store._core.lock.hold():
        assert single_commit.add(store._core, [(users._current(), prints)]) is None
        with pytest.raises(StoreLocked, match="in the middle of another change"):
            users.add("inside")
    assert single_commit.add(store._core, [(users._current(), prints)]) == 1
    hold = store._core.lock.at_once()
    assert hold is not None
    hold.end()


def test_a_kept_lock_is_given_back_to_durable_adds(store: bloomstore.Store) -> None:
    quick = store.create("quick", SPECS[1], durability="process")
    users = store.create("users", SPECS[1])
    for number in range(300):
        assert quick.add(number)
        assert users.add(number)
    assert quick.may_contain_many(range(300)).all()
    assert users.may_contain_many(range(300)).all()


def test_an_error_of_lmdb_is_an_error_of_the_store(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lmdb

    users = store.create("users", SPECS[1])
    users.add_many(range(10))
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise lmdb.MapFullError("full")

        patch.setattr("bloomstore.catalog.change.CatalogChange.append_journal", fail)
        with pytest.raises(StoreFailed, match="full"):
            users.add("never")
    assert "never" not in users
    assert users.add("next")


def test_a_full_filter_says_so(store: bloomstore.Store) -> None:
    small = store.create("small", Fixed(capacity=20, target_error=0.01))
    with pytest.raises(FilterFull):
        for number in range(500):
            small.add(number)
    assert small.stats().error_rate <= 0.01


@pytest.mark.skipif(kernels.BACKEND != "compiled", reason="the numpy twin asks the kernels")
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_missing_bits_are_those_of_a_preview(store: bloomstore.Store, spec: FilterSpec) -> None:
    seen = store.create("seen", spec)
    seen.add_many(range(90))
    view = seen._current()
    stage = view.live.newest
    assert stage.segment is not None
    geometry = stage.row.spec.geometry
    for words in np.random.default_rng(1).integers(0, 1 << 63, (500, 1, 2)).astype(np.uint64):
        _, _, bits = kernels.preview(stage.segment.vector, geometry, words, 1 << 40, 1 << 40)
        assert seen._missing_bits(words, view.generation) == bits
    assert seen._missing_bits(words, view.generation + 1) == -1


@pytest.mark.skipif(kernels.BACKEND != "compiled", reason="the numpy twin asks the kernels")
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_handle_sets_the_bits_that_a_kernel_sets(
    store: bloomstore.Store, spec: FilterSpec
) -> None:
    seen = store.create("seen", spec)
    seen.add_many(range(40))
    view = seen._current()
    stage = view.live.newest
    assert stage.segment is not None
    vector, geometry = stage.segment.vector, stage.row.spec.geometry
    original = vector.copy()
    for words in np.random.default_rng(1).integers(0, 1 << 63, (50, 1, 2)).astype(np.uint64):
        expected = vector.copy()
        kernels.apply(expected, geometry, words)
        assert seen._set_bits(words, view.generation)
        assert np.array_equal(vector, expected)
    before = vector.copy()
    other = np.array([[7, 8]], np.uint64)
    assert not seen._set_bits(other, view.generation + 1)
    seen._pause()
    assert not seen._set_bits(other, view.generation)
    assert np.array_equal(vector, before)
    vector[:] = original  # the journal knows nothing of all this


def test_a_rebuild_that_begins_before_the_lock_gets_the_known_keys_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look finds them in an old stage; by the time of the lock there is a new chain."""
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=50))
        seen.add_many(range(400))
        assert len(seen.stats().stages) > 2
        seen.may_contain_many(range(400))
        begun: list[coming_chain.Rebuild] = []
        real = single_commit.add

        def late(*arguments: object) -> int | None:
            if not begun:
                begun.append(coming_chain.begin(store, "seen", None))
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(single_commit, "add", late)
        assert seen.add_many([3, 5, 7, 1_000_000]) <= 1
        assert begun
        begun[0].switch()
        assert seen.may_contain_many([3, 5, 7, 1_000_000]).all()


def test_more_keys_than_a_kernel_takes_are_added_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were to be a bulk load; by the time of the lock there is a reason against it."""
    says = iter([True, False])
    monkeypatch.setattr("bloomstore.store.write.bulk_load.is_bulk", lambda *_: next(says))
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Fixed(capacity=400_000, target_error=0.01))
        seen.add(-1)
        assert -2 not in seen  # from now on keys are added in the ordinary way
        assert seen.add_many(np.arange(300_000)) > 290_000
        assert seen.may_contain_many(np.arange(300_000)).all()
