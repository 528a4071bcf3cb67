"""Fixtures for all tests: a store that must be sound when its test ends."""

from __future__ import annotations

import collections.abc as abc
import os
from pathlib import Path

import hypothesis
import pytest

import bloomstore
from tests.support.quick_stores import open_quietly, quick_folder
from tests.support.soundness import assert_sound

# Processes that the tests start need no threads for linear algebra: numpy starts them at its
# import, a third of the processor time of `import bloomstore`.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=int(os.environ.get("BLOOMSTORE_TEST_EXAMPLES", "100")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("default")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test may make its store."""
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> abc.Iterator[bloomstore.Store]:
    """A new store; its end reopens it and finds no problem."""
    with bloomstore.open(path) as opened:
        yield opened
    assert_sound(path)


@pytest.fixture(scope="module")
def measured() -> abc.Iterator[bloomstore.Store]:
    """A store without a journal: what is measured here are bits, not crashes."""
    with quick_folder() as folder, open_quietly(folder / "store", durability="process") as store:
        yield store
