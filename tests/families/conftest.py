"""One store for many measured filters: opening a store costs more than filling a small filter."""

from __future__ import annotations

import collections.abc as abc

import pytest

import bloomstore


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> abc.Iterator[bloomstore.Store]:
    """A store without a journal: what is measured here are bits, not crashes."""
    path = tmp_path_factory.mktemp("measured") / "store"
    with bloomstore.open(path, durability="process") as store:
        yield store
