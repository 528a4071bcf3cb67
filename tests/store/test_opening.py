"""Opening looks at the catalog and the journal, never at the vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.store import core


def test_opening_maps_no_segment_until_its_filter_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        for number in range(20):
            store.create(f"filter {number}", Fixed(capacity=1000, target_error=0.01))
        store["filter 7"].add_many(range(100))
    opened: list[str] = []
    real = core.open_segment

    def watch(path: Path, *arguments: object, **options: object) -> object:
        opened.append(path.name)
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(core, "open_segment", watch)
    for read_only in (False, True):
        opened.clear()
        with bloomstore.open(path, read_only=read_only) as store:
            assert len(store) == 20
            assert opened == []
            assert 50 in store["filter 7"]
            assert len(opened) == 1


def test_a_sealed_stage_is_verified_before_its_first_answer(path: Path) -> None:
    with bloomstore.open(path) as store:
        store.create("users", Scalable(target_error=0.01, initial_capacity=100)).add_many(
            range(1000)
        )
    with bloomstore.open(path) as store:
        chain = store["users"]._current().live
        assert not chain.is_verified
        assert not store["users"].may_contain_many(range(5000, 5100)).all()
        assert chain.is_verified
