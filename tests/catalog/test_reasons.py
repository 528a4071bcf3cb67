"""Programs go by the code of a reason, whatever its text says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog import frames, rows, upgrade
from bloomstore.catalog.reasons import Reason, ReasonCode, code_of_older_text

SPEC = Scalable(target_error=0.01, initial_capacity=100)


def test_codes_on_disk_never_change() -> None:
    """If this fails, a store that an earlier version wrote would be misread."""
    codes = {code.name: int(code) for code in ReasonCode}
    assert codes == {
        "OTHER": 0,
        "SYNC_FAILED": 1,
        "UNAPPLIED": 2,
        "DAMAGED_BLOCKS": 3,
        "KEYS_LOST": 4,
        "ROLLED_BACK": 5,
        "JOURNAL_LOST": 6,
        "NOT_BUILT": 32,
        "BEING_BUILT": 33,
        "INVALIDATED": 34,
        "BEHIND": 35,
        "PURGED": 36,
        "UNFED": 37,
        "ALTERED": 38,
    }


def test_a_fence_is_renewed_by_its_code_not_by_its_text(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    old = users.fence(Reason(ReasonCode.BEHIND, "1000 keys behind"))
    other = users.fence(Reason(ReasonCode.PURGED, "1000 keys behind"))
    new = users.fence(Reason(ReasonCode.BEHIND, "2000 keys behind"), renew=True)
    assert users.fences == {other: "1000 keys behind", new: "2000 keys behind"}
    assert users.fences_for(ReasonCode.BEHIND) == [new]
    users.unfence(old)
    assert set(users.fences) == {other, new}


def test_a_fence_in_a_callers_own_words_is_renewed_by_them(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC, fence="first")
    second = users.fence("second", renew=True)
    third = users.fence("first", renew=True)
    assert users.fences == {second: "second", third: "first"}
    assert str(users.state) == "fenced: first; second"
    assert sorted(users.fences_for(ReasonCode.OTHER)) == sorted([second, third])


def test_a_code_of_a_later_version_stays_in_the_row(store: bloomstore.Store) -> None:
    users = store.create("users", SPEC)
    users.fence(Reason(9999, "what only a later version knows"))
    users.fence("another")
    with store._core.catalog.read() as view:
        row = view.filter_row("users")
    assert row is not None
    assert Reason(9999, "what only a later version knows") in row.fences.values()
    assert rows.unpack_filter(b"users", rows.pack_filter(row)) == row
    assert "nobody" in users


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a sync failed: Input/output error", ReasonCode.SYNC_FAILED),
        ("damaged blocks [0, 4]", ReasonCode.DAMAGED_BLOCKS),
        ("more than 50000 keys behind its outbox: run `bloomstore follow`", ReasonCode.BEHIND),
        ("a sync that did not fail", ReasonCode.OTHER),
        ("", ReasonCode.OTHER),
    ],
)
def test_texts_of_older_stores_have_codes(text: str, code: ReasonCode) -> None:
    assert code_of_older_text(text) is code


def test_the_step_leaves_rows_alone_that_cannot_be_read(tmp_path: Path) -> None:
    with bloomstore.open(tmp_path / "store") as store:
        for name in ("damaged", "sound"):
            store.create(name, SPEC)
        with store._core.lock.hold(), store._core.catalog.write() as change:
            for key, payload in change.rows("filters"):
                plain = json.loads(payload)
                plain["fences"] = {"token": "being built"}
                change.put_row("filters", key, frames.dump(plain))
            for key, payload in change.rows("stages"):
                plain = json.loads(payload)
                del plain["poisoned_code"]
                change.put_row("stages", key, frames.dump(plain))
            table = change._tables["filters"]
            raw = bytes(change._transaction.get(b"damaged", db=table))
            change._transaction.put(b"damaged", raw[:-1] + b"!", db=table)
            upgrade.code_reasons(change)
        with store._core.catalog.read() as view:
            assert [error.key for error in view.damaged_rows("filters")] == [b"damaged"]
            row = view.filter_row("sound")
            assert row is not None
            assert row.fences == {"token": Reason(ReasonCode.BEING_BUILT, "being built")}
            assert view.stage_rows(row.number)[0].poisoned is None
