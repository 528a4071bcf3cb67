"""Opening looks at the catalog and the journal, never at the vectors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.errors import StoreFailed
from bloomstore.segment import segment
from bloomstore.store.process import folder, open_files
from tests.faults.damage import in_a_process_that_is_killed


def test_opening_maps_no_segment_until_its_filter_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(path) as store:
        for number in range(20):
            store.create(f"filter {number}", Fixed(capacity=1000, target_error=0.01))
        store["filter 7"].add_many(range(100))
    opened: list[str] = []
    real = segment.open_segment

    def watch(path: Path, *arguments: object, **options: object) -> object:
        opened.append(path.name)
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(open_files, "open_segment", watch)
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


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_boot_that_cannot_be_named_is_no_other_boot(
    path: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else filters of durability `process` would be damaged for ever."""
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=1000, target_error=0.01), durability="process")
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["seen"].add_many(range(100)))

    def refuse(self: Path, **_: object) -> str:
        raise OSError(error, os.strerror(error), str(self))

    folder.boot_id.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(StoreFailed, match=f"boot_id.*{os.strerror(error)}"):
            bloomstore.open(path)
    with bloomstore.open(path) as store:
        assert store["seen"].state.is_sound
        assert store["seen"].may_contain_many(range(100)).all()


def test_a_system_without_boot_ids_has_another_name_for_a_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(self: Path, **_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))

    folder.boot_id.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", missing)
        assert folder.boot_id().startswith("started ")
    folder.boot_id.cache_clear()
