"""The folder of segments is gone, or cannot be listed: an error of ours, and nothing is changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic
from bloomstore.errors import BloomStoreError, StoreFailed
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=100, target_error=0.01)


@pytest.fixture(params=["gone", "no descriptors"])
def refused(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """A store with 250 keys whose segments cannot be listed, and what says so."""
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add_many(range(250))
        if request.param == "gone":
            (path / "segments").rename(path / "away")
            yield store, "No such file or directory"
            (path / "away").rename(path / "segments")
        else:
            with monkeypatch.context() as patch:
                patch.setattr(os, "listdir", _refuse)
                patch.setattr(os, "scandir", _refuse)
                yield store, "Too many open files"
        assert store["seen"].may_contain_many(range(250)).all()
    assert_sound(path)


def _refuse(path: object) -> list[str]:
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def test_check_names_it_as_a_problem(refused: tuple[bloomstore.Store, str]) -> None:
    store, what = refused
    problems = [str(problem) for problem in store.check()]
    assert any("segments" in line and what in line for line in problems)


def test_repair_raises(refused: tuple[bloomstore.Store, str]) -> None:
    store, what = refused
    with pytest.raises(StoreFailed, match=f"segments.*{what}"):
        list(store.repair())


def test_everything_else_raises_errors_of_ours_or_goes_on(
    refused: tuple[bloomstore.Store, str], path: Path
) -> None:
    store, _ = refused
    seen = store["seen"]
    said = []
    for work in (
        lambda: seen.add_many(range(5000, 5200)),
        lambda: store.create("other", SPEC),
        store.checkpoint,
        seen.stats,
        lambda: store.backup(path.with_name("saved")),
        lambda: store.rebuild("seen").__enter__(),
    ):
        try:
            work()
        except BloomStoreError as error:
            said.append(str(error))
    assert all(str(path / "segments") in what for what in said), said
    assert seen.may_contain_many(range(250)).all()
