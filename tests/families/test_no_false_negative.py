"""A key that was added is found for ever, whatever the keys, the sizes and the order of things.

The model is a Python set. Capacities are small, so most examples grow several times; stores are
closed and opened again in between.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bloomstore
from bloomstore.errors import FilterFull
from bloomstore.keys import Key
from tests.support.quick_stores import open_quietly, quick_folder
from tests.support.variants import VARIANTS, Variant

keys = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 40),  # often twice
    st.text(max_size=8),
    st.binary(max_size=8),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), keys),
        st.tuples(st.just("add_many"), st.lists(keys, max_size=60)),
        # A list rarely draws so many: the filter has to grow.
        st.tuples(st.just("add_range"), st.integers(0, 10_000)),
        st.tuples(st.just("reopen"), st.sampled_from(["read_only", "writable"])),
    ),
    min_size=3,
    max_size=12,
)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@settings(max_examples=settings().max_examples // 5)  # each has many steps
@given(
    capacity=st.integers(4, 30),
    target_error=st.sampled_from([0.1, 1e-2, 1e-4, 1e-6]),
    durability=st.sampled_from(["commit", "process"]),
    steps=steps,
)
def test_every_added_key_is_found_for_ever(
    variant: Variant,
    capacity: int,
    target_error: float,
    durability: bloomstore.Durability,
    steps: list[tuple[str, object]],
) -> None:
    added: set[Key] = set()
    with quick_folder() as folder:
        path = folder / "store"
        store = open_quietly(path)
        try:
            seen = store.create("seen", variant.spec(capacity, target_error), durability=durability)
            for what, given_ in steps:
                if what == "reopen":
                    store.close()
                    if given_ == "read_only":
                        with open_quietly(path, read_only=True) as reader:
                            assert_finds(reader["seen"], added)
                    store = open_quietly(path)
                    seen = store["seen"]
                else:
                    add(seen, what, given_, added)
                assert_finds(seen, added)
        finally:
            store.close()


def add(seen: bloomstore.Filter, what: str, given_: Any, added: set[Key]) -> None:
    """Adds as the step says; what a full filter did not acknowledge is not in the model."""
    try:
        if what == "add":
            reported = given_ in seen
            assert seen.add(given_) is not reported
            added.add(given_)
            return
        batch = range(given_, given_ + 60) if what == "add_range" else given_
        new = seen.add_many(batch)
        assert 0 <= new <= len(set(batch) - added)
        added.update(batch)
        assert seen.add_many(batch) == 0
    except FilterFull:
        assert isinstance(seen.spec, bloomstore.Fixed)


def assert_finds(seen: bloomstore.Filter, added: set[Key]) -> None:
    """All keys of the model are found in one batch, and some one by one."""
    assert seen.state.is_sound
    assert seen.may_contain_many(list(added)).all()
    assert all(key in seen for key in itertools.islice(added, 25))
