"""Checkpoints, and how much of a filter of durability `process` survives."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed, Scalable
from tests.support.soundness import assert_sound

SPEC = Scalable(target_error=0.01, initial_capacity=100)


def test_checkpoint_empties_the_journal(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    users.add_many(range(50))
    assert users.stats().journal_rows == 1
    store.checkpoint()
    assert users.stats().journal_rows == 0
    assert users.stats().keys == 50


def test_a_long_journal_is_checkpointed_by_itself(
    store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bloomstore.store.durable.checkpoint.JOURNAL_BYTES", 1 << 16)
    users = store.create("users", Fixed(capacity=100_000, target_error=0.01))
    rows = []
    for first in range(0, 50_000, 500):
        users.add_many(range(first, first + 500))
        rows.append(users.stats().journal_rows)
    assert max(rows) < 20
    assert users.may_contain_many(range(50_000)).all()


def test_process_durability_keeps_its_keys_over_a_reopen(path: Path) -> None:
    with bloomstore.open(path, durability="process") as store:
        users = store.create("users", SPEC)
        users.add_many(range(5000))
        assert users.durability == "process"
        assert users.stats().keys > 4900
    with bloomstore.open(path) as store:
        assert store["users"].may_contain_many(range(5000)).all()
        assert store["users"].stats().keys > 4900
    assert_sound(path)


def test_process_durability_answers_maybe_after_the_machine_went_down(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bloomstore.open(path)
    users = store.create("users", SPEC, durability="process")
    safe = store.create("safe", SPEC)
    users.add("alice")
    safe.add("bob")
    # As after a power cut: nothing is closed, and the machine has another boot id.
    monkeypatch.setattr(type(store), "_checkpoint_at_close", lambda self, core: None)
    store.close()
    monkeypatch.setattr("bloomstore.store.process.open_files.boot_id", lambda: "another boot")
    with bloomstore.open(path, read_only=True) as after:
        assert after["users"].state.name == "dirty"
        assert "nobody" in after["users"]
    with bloomstore.open(path) as after:
        assert "nobody" in after["users"]
        assert "nobody" not in after["safe"]
        assert "machine went down" in str(after["users"].state)
        with after.rebuild("users") as new:
            new.add_many(["alice"])
            new.switch()
        assert "alice" in after["users"]
        assert "nobody" not in after["users"]
    assert_sound(path)
