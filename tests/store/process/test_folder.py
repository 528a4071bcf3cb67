"""A path is what it was when it was given, wherever the process goes afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic
from bloomstore.errors import StoreNotFound
from bloomstore.rebuild import CsvSource, TextSource, rebuild
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=100, target_error=0.01)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders to work in."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    return here, there


def test_a_store_stays_where_it_was_opened(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places
    monkeypatch.chdir(there)
    with bloomstore.open("filters") as other:
        other.create("seen", SPEC).add_many(range(50))
    files = sorted(path.name for path in Path("filters/segments").iterdir())
    monkeypatch.chdir(here)
    with bloomstore.open("filters") as store:
        assert store.path == here / "filters"
        seen = store.create("seen", SPEC)
        seen.add_many(range(90))
        monkeypatch.chdir(there)
        seen.add_many(range(90, 400))
        assert seen.state.is_sound
        with bloomstore.open("filters") as other:
            assert other is not store
            assert other["seen"].stats().keys == 50
        store.backup("saved")
    assert sorted(path.name for path in Path("filters/segments").iterdir()) == files
    for path in (here / "filters", there / "filters", there / "saved"):
        assert_sound(path)
    for path in (here / "filters", there / "saved"):
        with bloomstore.open(path) as store:
            assert store["seen"].may_contain_many(range(400)).all()


def test_a_source_stays_the_file_that_it_was_given(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places
    for place, word in ((here, "right"), (there, "wrong")):
        (place / "keys.txt").write_text(f"{word}\n")
        (place / "keys.csv").write_text(f"key\n{word}\n")
    monkeypatch.chdir(here)
    sources = [TextSource("keys.txt"), CsvSource("keys.csv", ["key"])]
    with bloomstore.open("filters") as store:
        seen = store.create("seen", SPEC)
        monkeypatch.chdir(there)
        for source in sources:
            rebuild(store, "seen", source)
            assert "right" in seen
            assert "wrong" not in seen


def test_a_folder_that_is_gone_has_no_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StoreNotFound, match="the current folder is gone"):
        bloomstore.open("filters")
