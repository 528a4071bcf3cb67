"""A store for every test, checked when the test is over; and the command line to use it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import bloomstore
from tests.cli.runner import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch)


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Path]:
    """The path of a store that the test makes. Sound at the end."""
    path = tmp_path / "filters"
    yield path
    with bloomstore.open(path, read_only=True) as store:
        assert list(store.check()) == []


@pytest.fixture
def store(new_store: Path) -> Path:
    """A store with the filter `seen`, which holds alice and bob."""
    with bloomstore.open(new_store) as opened:
        seen = opened.create("seen", bloomstore.Scalable(target_error=0.001, initial_capacity=100))
        seen.add_many(["alice", "bob"])
    return new_store
