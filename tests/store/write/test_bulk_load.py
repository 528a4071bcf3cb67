"""A bulk load gives the same filter as adding through the journal, without the journal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Dynamic, FilterSpec, Fixed, Scalable
from bloomstore.errors import FilterFull
from bloomstore.store.write import bulk_load

SPECS: list[FilterSpec] = [
    Fixed(capacity=40_000, target_error=0.01),
    Scalable(target_error=0.01, initial_capacity=1000),
    Scalable(target_error=0.001, initial_capacity=100_000, layout="sliced"),
    Dynamic(capacity=5000, target_error=0.001),
]


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_bulk_load_gives_the_same_bits(
    tmp_path: Path,
    spec: FilterSpec,
    durability: bloomstore.Durability,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    for least in (bulk_load.LEAST_KEYS, 100):
        monkeypatch.setattr(bulk_load, "LEAST_KEYS", least)
        with bloomstore.open(tmp_path / str(least)) as store:
            users = store.create("users", spec, durability=durability)
            added = users.add_many(list(range(500)))
            added += users.add_many(np.arange(400, 30_000))
            users.add("one more")
            added += users.add_many(list(range(20_000, 35_000)))
            stats = users.stats()
            vectors = [vector.tobytes() for vector in users._current().live.vectors]
            seen.append((added, stats.keys, [stage.fill for stage in stats.stages], vectors))
            assert users.may_contain_many(range(35_000)).all()
        with bloomstore.open(tmp_path / str(least)) as store:
            assert store["users"].may_contain_many(range(35_000)).all()
            assert list(store.check()) == []
            assert len(list((tmp_path / str(least) / "segments").iterdir())) == len(stats.stages)
    assert seen[0] == seen[1]


def test_a_bulk_load_leaves_no_journal(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "LEAST_KEYS", 100)
    users = store.create("users", Scalable(target_error=0.01, initial_capacity=1000))
    users.add_many(range(50))
    assert users.stats().journal_rows == 1
    users.add_many(range(5000))
    assert users.stats().journal_rows == 0
    assert users.may_contain_many(range(5000)).all()


def test_a_full_filter_refuses_the_rest_of_a_bulk_load(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "LEAST_KEYS", 100)
    users = store.create("users", Fixed(capacity=1000, target_error=0.01))
    with pytest.raises(FilterFull) as caught:
        users.add_many(range(5000))
    assert caught.value.added == users.stats().keys >= 1000
    assert users.may_contain_many(range(1000)).all()
    assert users.stats().error_rate <= 0.011  # what the bits are by luck


def test_generators_and_small_batches_are_no_bulk_load(store: bloomstore.Store) -> None:
    view = store.create("users", Scalable(target_error=0.01))._current()
    assert not bulk_load.is_bulk(view, (key for key in range(10)))
    assert not bulk_load.is_bulk(view, range(1000))
    assert bulk_load.is_bulk(view, range(bulk_load.LEAST_KEYS))
