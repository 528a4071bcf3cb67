"""The numbers of filters are had with one look at the journal, however many filters there are."""

from __future__ import annotations

import collections.abc as abc
import shutil
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.view import CatalogView

NAMES = ["first", "second", "third"]


@pytest.fixture
def with_journal(tmp_path: Path) -> Path:
    """A copy of a store whose journal nobody has checkpointed."""
    with bloomstore.open(tmp_path / "original") as store:
        for name in NAMES:
            users = store.create(name, Scalable(target_error=0.01, initial_capacity=10))
            for number in range(15):
                users.add(number)
        return Path(shutil.copytree(tmp_path / "original", tmp_path / "copy"))


@pytest.mark.parametrize("read_only", [True, False])
def test_the_journal_is_scanned_once_for_all_numbers_of_all_filters(
    with_journal: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    with bloomstore.open(with_journal, read_only=read_only) as store:
        scans: list[int] = []
        real = CatalogView.journal

        def journal(self: CatalogView, after: int = 0) -> abc.Iterator[JournalRow]:
            scans.append(after)
            return real(self, after)

        monkeypatch.setattr(CatalogView, "journal", journal)
        stats = [store[name].stats() for name in NAMES]
        for name in NAMES:
            assert store[name].estimate_count().low <= 15
        assert len(scans) == 1
        monkeypatch.undo()
        assert [each.state.is_sound for each in stats] == [True] * 3
        with store._core.catalog.read() as view:
            assert sum(each.journal_rows for each in stats) == view.journal_rows() > 0
