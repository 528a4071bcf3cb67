"""Lookups of many keys: every container and every number of threads gives the same answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.errors import KeyTypeError, SpecError
from bloomstore.filters import search


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 10_007])
def test_threads_give_the_answers_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, count: int
) -> None:
    monkeypatch.setattr(search, "SLICE_KEYS", 500)
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=1000))
        seen.add_many(range(0, 10_000, 3))
        keys = np.arange(count, dtype=np.int64)
        expected = seen.may_contain_many(iter(range(count)))
        monkeypatch.setattr(search, "THREADS", threads)
        assert np.array_equal(seen.may_contain_many(keys), expected)
        assert np.array_equal(seen.may_contain_many(keys.tolist()), expected)
        assert expected[:10_000:3].all()


def test_an_error_in_a_thread_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SLICE_KEYS", 100)
    monkeypatch.setattr(search, "THREADS", 3)
    main = threading.current_thread()

    def fails(*_: object) -> int:
        if threading.current_thread() is not main:
            raise MemoryError
        return 0

    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Fixed(capacity=1000, target_error=0.01))
        monkeypatch.setattr(search.kernels, "find_keys", fails)
        with pytest.raises(MemoryError):
            seen.may_contain_many(np.arange(1000))
        monkeypatch.undo()
        assert threading.active_count() == 1


def test_a_key_that_is_none_is_named_by_its_place(tmp_path: Path) -> None:
    keys: list[Any] = [*range(20_000), None, 5]
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Fixed(capacity=1000, target_error=0.01))
        with pytest.raises(KeyTypeError, match="key 20000 of the batch"):
            seen.may_contain_many(keys)


def test_a_batch_finds_the_keys_that_it_holds(tmp_path: Path) -> None:
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Fixed(capacity=1000, target_error=0.01))
        with store.batch():
            seen.add_many([1, 2])
            assert seen.may_contain_many([1, 2, 3]).tolist() == [True, True, False]
            assert seen.may_contain_many(np.array([2, 3])).tolist() == [True, False]


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_refused(setting: str) -> None:
    with pytest.raises(SpecError, match="BLOOMSTORE_THREADS"):
        search.allowed_threads(setting)


def test_the_number_of_threads_is_what_was_asked_for_or_what_there_is() -> None:
    assert search.allowed_threads("7") == 7
    assert 1 <= search.allowed_threads("") <= 4
