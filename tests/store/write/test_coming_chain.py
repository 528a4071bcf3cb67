"""A rebuild makes a new chain beside the live one: every key of either is found at all times."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.catalog.rows import Durability
from bloomstore.errors import (
    BloomStoreError,
    SpecError,
)
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.01, initial_capacity=100)


def test_a_rebuild_replaces_the_keys_and_keeps_those_added_meanwhile(
    store: bloomstore.Store, path: Path
) -> None:
    users = store.create("users", SPEC)
    users.add_many(range(1000))
    spec = Fixed(capacity=600, target_error=1e-4)
    with store.rebuild("users", spec) as new:
        new.add_many(range(500))
        users.add("late")
        users.add(700)  # known to the old chain, so it must not be skipped for the new one
        with store.batch():
            users.add("batched")
        assert 999 in users  # the old chain answers until the switch
        new.switch()
    assert users.spec == Fixed(
        capacity=600, target_error=1e-4, layout=cast("Any", users.spec).layout
    )
    assert users.may_contain_many([*range(500), "late", 700, "batched"]).all()
    assert np.count_nonzero(users.may_contain_many(range(701, 1000))) < 10
    assert len(list((path / "segments").iterdir())) == 1


def test_a_rebuild_without_switch_changes_nothing(store: bloomstore.Store, path: Path) -> None:
    users = store.create("users", SPEC)
    users.add_many(range(50))
    with store.rebuild("users") as new:
        new.add_many(range(1000, 2000))
    assert users.may_contain_many(range(50)).all()
    assert not users.may_contain_many(range(1000, 1010)).any()
    assert len(list((path / "segments").iterdir())) == 1


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("in_batch", [False, True])
def test_a_rebuild_that_is_too_small_for_its_writers_is_given_up(
    store: bloomstore.Store, path: Path, durability: Durability, in_batch: bool
) -> None:
    users = store.create("users", SPEC, durability=durability)
    others = store.create("others", SPEC)
    with (
        pytest.raises(BloomStoreError, match="writers found it full"),
        store.rebuild("users", Fixed(capacity=100, target_error=1e-3)) as new,
    ):
        new.add_many(range(90))
        if in_batch:
            with store.batch():
                users.add_many(range(1000, 2000))
                others.add_many(range(1000, 2000))
        else:
            users.add_many(range(1000, 2000))
            others.add_many(range(1000, 2000))
        new.switch()
    users.add(2000)
    assert users.may_contain_many(range(1000, 2001)).all()
    assert others.may_contain_many(range(1000, 2000)).all()
    assert_sound(path)
    with bloomstore.open(path) as again:
        assert again["users"].may_contain_many(range(1000, 2001)).all()


def test_a_rebuild_keeps_the_seed(store: bloomstore.Store) -> None:
    store.create("users", SPEC)
    with (
        pytest.raises(SpecError, match="seed"),
        store.rebuild("users", Scalable(target_error=0.1, seed=5)),
    ):
        pass
