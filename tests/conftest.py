"""Fixtures for all tests: a store that must be sound when its test ends."""

from __future__ import annotations

import collections.abc as abc
import os
from pathlib import Path

import hypothesis
import pytest

import bloomstore

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


def assert_sound(path: Path) -> None:
    """The store at this path has no problem."""
    with bloomstore.open(path, create=False) as store:
        assert [str(problem) for problem in store.check()] == []
