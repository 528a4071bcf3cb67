"""A backup is a store: consistent, sound, of its own incarnation, made while others write."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.errors import StoreFailed
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.01, initial_capacity=200)


def test_a_backup_has_every_key_and_its_own_incarnation(
    store: bloomstore.Store, tmp_path: Path
) -> None:
    store.create("users", SPEC).add_many(range(5000))
    store.create("fast", SPEC, durability="process").add_many(range(5000))
    store.notes["position"] = b"42"
    store.backup(tmp_path / "copy")
    store["users"].add_many(range(5000, 6000))
    assert_sound(tmp_path / "copy")
    with bloomstore.open(tmp_path / "copy") as copy:
        assert copy["users"].may_contain_many(range(5000)).all()
        assert copy["fast"].may_contain_many(range(5000)).all()
        assert not copy["users"].may_contain_many(range(5000, 6000)).all()
        assert copy.notes["position"] == b"42"
        assert copy.incarnation != store.incarnation
        copy["users"].add("goes on")
        assert "goes on" in copy["users"]


def test_a_backup_while_another_thread_adds_holds_what_came_before(
    store: bloomstore.Store, tmp_path: Path
) -> None:
    users = store.create("users", SPEC)
    users.add_many(range(1000))
    stop = threading.Event()

    def add() -> None:
        number = 1000
        while not stop.is_set():
            users.add_many(range(number, number + 50))
            number += 50

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for round_ in range(5):
            known = int(users.stats().keys)
            store.backup(tmp_path / str(round_))
            with bloomstore.open(tmp_path / str(round_), read_only=True) as copy:
                assert copy["users"].state.is_sound
                assert copy["users"].stats().keys >= known
                assert copy["users"].may_contain_many(range(1000)).all()
                assert list(copy.check()) == []
    finally:
        stop.set()
        thread.join()


def test_a_backup_never_overwrites(store: bloomstore.Store, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    (target / "letter.txt").write_text("dear")
    with pytest.raises(StoreFailed, match="not empty, and a backup goes"):
        store.backup(target)
    assert (target / "letter.txt").read_text() == "dear"
