"""One store for many measured filters: opening a store costs more than filling a small filter."""

from __future__ import annotations

import collections.abc as abc

import pytest

import bloomstore
from families.folders import open_quietly, quick_folder


@pytest.fixture(scope="module")
def measured() -> abc.Iterator[bloomstore.Store]:
    """A store without a journal: what is measured here are bits, not crashes."""
    with quick_folder() as folder, open_quietly(folder / "store", durability="process") as store:
        yield store
