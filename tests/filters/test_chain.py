"""Lookups of many keys: every container gives the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.errors import KeyTypeError
from bloomstore.filters import chain


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 10_007])
def test_slices_of_an_array_give_the_answers_of_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(chain, "SLICE_KEYS", 500)
    with bloomstore.open(tmp_path / "store") as store:
        seen = store.create("seen", Scalable(target_error=0.01, initial_capacity=1000))
        seen.add_many(range(0, 10_000, 3))
        keys = np.arange(count, dtype=np.int64)
        expected = seen.may_contain_many(iter(range(count)))
        assert np.array_equal(seen.may_contain_many(keys), expected)
        assert np.array_equal(seen.may_contain_many(keys.tolist()), expected)
        assert expected[:10_000:3].all()


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
