"""What a filter's handle promises, for every family, on a real store."""

from __future__ import annotations

import collections.abc as abc
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bloomstore
from bloomstore import ByRate, Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence
from bloomstore.errors import FilterFull, KeyTypeError

FAMILIES: list[FilterSpec] = [
    Fixed(capacity=3000, target_error=0.01),
    Scalable(target_error=0.01, initial_capacity=100),
    Scalable(target_error=0.001, initial_capacity=64, layout="sliced", scheme="h3"),
    Dynamic(capacity=500, target_error=0.001),
    Flexible(baseline_bits=4096, hashes=5, capacity=300, expansion=Sequence([1, 2, 3])),
    Flexible(baseline_bits=4096, hashes=5, error=0.001, expansion=ByRate()),
]


@pytest.mark.parametrize("spec", FAMILIES, ids=lambda spec: type(spec).__name__)
def test_added_keys_are_found_at_once_and_after_reopening(path: Path, spec: FilterSpec) -> None:
    with bloomstore.open(path) as store:
        seen = store.create("seen", spec)
        assert seen.add_many(range(2000)) > 1950
        assert seen.may_contain_many(range(2000)).all()
        assert 1999 in seen
    with bloomstore.open(path, read_only=True) as store:
        assert store["seen"].may_contain_many(range(2000)).all()
        assert store["seen"].stats().state.is_sound


@pytest.mark.parametrize("spec", FAMILIES, ids=lambda spec: type(spec).__name__)
def test_re_adding_a_known_key_uses_no_capacity(store: bloomstore.Store, spec: FilterSpec) -> None:
    seen = store.create("seen", spec)
    seen.add_many(range(200))
    before = seen.stats()
    for _ in range(20):
        assert seen.add_many(range(200)) == 0
        assert not seen.add(7)
    assert seen.stats() == before


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("spec", FAMILIES[:-1], ids=lambda spec: type(spec).__name__)
def test_one_batch_and_single_adds_give_the_same_bits(
    tmp_path: Path, spec: FilterSpec, durability: bloomstore.Durability
) -> None:
    # The last family is left out: its stages follow the clock, so two runs may differ.
    keys = [int(key) for key in np.random.default_rng(1).integers(0, 1000, 600)]
    vectors = []
    for how in ("batch", "single"):
        with bloomstore.open(tmp_path / how) as store:
            seen = store.create("seen", spec, durability=durability)
            added = seen.add_many(keys) if how == "batch" else sum(map(seen.add, keys))
            chain = seen._current().live
            vectors.append((added, [vector.tobytes() for vector in chain.vectors]))
    assert vectors[0] == vectors[1]


def test_add_says_whether_the_key_was_reported_before(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01))
    assert seen.add("alice")
    assert not seen.add("alice")
    assert "alice" in seen
    assert "bob" not in seen


def test_add_many_counts_a_key_that_occurs_twice_once(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=1e-6))
    assert seen.add_many(["a", "b", "a", "b", "c"]) == 3


def test_str_and_bytes_are_different_keys(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=1e-6))
    seen.add("alice")
    assert b"alice" not in seen


def test_equal_numbers_are_one_key(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=1e-6))
    seen.add(1)
    assert 1.0 in seen
    assert True in seen
    assert np.int32(1) in seen


def test_a_generator_is_streamed_in_chunks(store: bloomstore.Store) -> None:
    seen = store.create("seen", Fixed(capacity=300_000, target_error=0.01))
    taken = itertools.count()
    produced = []

    def keys() -> abc.Iterator[int]:
        for key in itertools.islice(taken, 200_000):
            if key == 150_000:
                produced.append(seen.stats().keys)
            yield key

    seen.add_many(keys())
    assert produced[0] > 100_000  # earlier chunks were added before the generator went on


def test_empty_batches_change_nothing(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01))
    assert seen.add_many([]) == 0
    assert seen.may_contain_many([]).tolist() == []
    assert seen.may_contain_many(np.zeros(0, np.int64)).dtype == np.bool_


def test_a_refused_key_changes_nothing(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01))
    with pytest.raises(KeyTypeError):
        seen.add(None)
    with pytest.raises(KeyTypeError):
        seen.add_many(["a", "b", None])  # type: ignore[list-item]
    with pytest.raises(KeyTypeError):
        None in seen  # noqa: B015
    assert seen.stats().keys == 0
    assert "a" not in seen


def test_a_fixed_filter_takes_its_capacity_and_then_refuses(store: bloomstore.Store) -> None:
    for seed in range(20):
        name = f"words {seed}"
        words = store.create(name, Fixed(capacity=100, target_error=0.01, seed=seed))
        words.add_many(range(100))
        with pytest.raises(FilterFull) as caught:
            words.add_many(range(100, 1000))
        assert caught.value.name == name
        assert words.may_contain_many(range(100 + caught.value.added)).all()
        assert words.stats().error_rate <= 0.0115  # blocked: 0.01 on average
        store.drop(name)


def test_a_full_filter_counts_the_keys_of_the_whole_call(store: bloomstore.Store) -> None:
    words = store.create("words", Fixed(capacity=100_000, target_error=0.01), durability="process")
    with pytest.raises(FilterFull) as caught:
        words.add_many(range(300_000))
    assert caught.value.added == words.stats().keys > 99_000


def test_scalable_filters_grow_and_keep_the_bound(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=16))
    seen.add_many(range(16_000))
    stats = seen.stats()
    assert len(stats.stages) >= 9
    assert all(stage.error_rate <= stage.target_error for stage in stats.stages)
    assert stats.error_rate <= 0.01
    assert [stage.sealed for stage in stats.stages] == [True] * (len(stats.stages) - 1) + [False]


def test_flexible_stages_follow_the_sequence(store: bloomstore.Store) -> None:
    spec = Flexible(baseline_bits=1024, hashes=4, capacity=50, expansion=Sequence([1, 2, 3]))
    flows = store.create("flows", spec)
    flows.add_many(range(700))
    stages = flows.stats().stages
    assert [stage.bits for stage in stages[:5]] == [1024, 2048, 4096, 4096, 4096]
    assert [stage.keys for stage in stages[:4]] == [50, 100, 200, 200]


def test_the_sfbf_paper_example_makes_vectors_of_8_16_and_32_bits(
    store: bloomstore.Store,
) -> None:
    spec = Flexible(baseline_bits=8, hashes=2, capacity=2, expansion=Sequence([1, 2, 3]))
    letters = store.create("letters", spec)
    letters.add_many("abcdefghijklmnopqrstuvwxyz"[i] for i in range(26))
    stages = letters.stats().stages
    assert [stage.bits for stage in stages[:3]] == [8, 16, 32]
    assert [stage.keys for stage in stages[:2]] == [2, 4]


def test_dynamic_stages_are_all_alike(store: bloomstore.Store) -> None:
    today = store.create("today", Dynamic(capacity=100, target_error=0.001))
    today.add_many(range(450))
    stats = today.stats()
    assert [stage.keys for stage in stats.stages[:4]] == [100] * 4
    assert len({stage.geometry for stage in stats.stages}) == 1
    # Stages share positions, and four blocks may be filled unevenly.
    assert 1 - 0.999**5 < stats.target_error < 2 * (1 - 0.999**5)


def test_arrival_rates_survive_a_reopen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 1_000_000.0}
    monkeypatch.setattr("bloomstore.store.durable.clock.since_boot", lambda: clock["now"])
    spec = Flexible(baseline_bits=4096, hashes=4, capacity=100, expansion=ByRate())
    with bloomstore.open(path) as store:
        flows = store.create("flows", spec)
        clock["now"] += 100.0  # one key a second
        flows.add_many(range(101))
        assert [stage.bits for stage in flows.stats().stages] == [4096, 4096]
    clock["now"] += 25.0  # four keys a second: lambda = log2(4) + 1 = 3
    with bloomstore.open(path) as store:
        flows = store["flows"]
        flows.add_many(range(101, 210))
        assert [stage.bits for stage in flows.stats().stages] == [4096, 4096, 16384]


def test_estimate_count_is_near_the_truth(store: bloomstore.Store) -> None:
    for layout in ("plain", "sliced", "blocked"):
        spec = Scalable(target_error=0.01, initial_capacity=1000, layout=layout)
        seen = store.create(layout, spec)
        seen.add_many(range(20_000))
        estimate = seen.estimate_count()
        assert estimate.low <= 20_000 <= estimate.high
        assert abs(estimate.value - 20_000) < 400


def test_arrow_pandas_polars_and_numpy_give_the_same_answers(store: bloomstore.Store) -> None:
    seen = store.create("seen", Scalable(target_error=1e-6))
    seen.add_many(pa.array([f"user {i}" for i in range(100)]))
    asked = [f"user {i}" for i in range(50, 150)]
    expected = [True] * 50 + [False] * 50
    for keys in (
        asked,
        np.array(asked),
        pa.array(asked),
        pd.Series(asked),
        pl.Series(asked),
        iter(asked),
    ):
        assert seen.may_contain_many(keys).tolist() == expected
