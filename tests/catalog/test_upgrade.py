"""Stores of an older format are upgraded step by step, those of a newer one are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore.catalog import upgrade
from bloomstore.catalog.change import CatalogChange
from bloomstore.errors import StoreLocked, StoreReadOnly, UnsupportedVersion
from bloomstore.segment import header
from tests.support.checkout import ROOT

GOLDEN = ROOT / "tests" / "golden"
KEYS = [f"user {number}" for number in range(200)]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A store as version 1 wrote it."""
    with tarfile.open(GOLDEN / "store-v1.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def add_a_field(change: CatalogChange) -> None:
    """As a step to a next format could: every filter gets a field, and is counted."""
    for key, payload in change.rows("filters"):
        plain = json.loads(payload)
        plain["purpose"] = plain.get("purpose", "") + "!"
        change.put_row("filters", key, json.dumps(plain).encode())
    change.put_note(b"upgraded", str(len(change.rows("filters"))).encode())


def format_of(path: Path) -> int:
    with bloomstore.open(path, read_only=True) as store, store._core.catalog.read() as view:
        return view.identity().format


def answers(path: Path) -> dict[str, list[int]]:
    with bloomstore.open(path, read_only=True) as store:
        assert [str(problem) for problem in store.check()] == []
        for name in store:
            assert store[name].may_contain_many(KEYS).all()
        asked = np.arange(100_000)
        return {name: asked[store[name].may_contain_many(asked)][:5].tolist() for name in store}


def expected() -> dict[str, list[int]]:
    described = json.loads((GOLDEN / "store-v1.json").read_text())
    return {name: facts["false positives"] for name, facts in described.items()}


def test_a_golden_store_goes_through_every_step_once(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    steps = [*upgrade.STEPS, add_a_field, lambda change: taken.append(change.rows("notes")[0][1])]
    monkeypatch.setattr(upgrade, "STEPS", steps)
    for _ in range(2):
        with bloomstore.open(golden) as store:
            assert store.notes["upgraded"] == b"17"
            with store._core.catalog.read() as view:
                purposes = {json.loads(raw)["purpose"] for _, raw in view._scan("filters")}
        assert purposes == {"!"}
    assert taken == [b"17"]
    assert format_of(golden) == 1 + len(steps)
    assert answers(golden) == expected()


def test_reading_alone_does_not_upgrade(golden: Path) -> None:
    with pytest.raises(StoreReadOnly, match=r"has format 1, this library needs \d: open it once"):
        bloomstore.open(golden, read_only=True)
    bloomstore.open(golden).close()
    assert answers(golden) == expected()


def test_a_step_that_fails_leaves_the_format_before_it(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(change: CatalogChange) -> None:
        add_a_field(change)
        raise KeyboardInterrupt

    steps = [*upgrade.STEPS, add_a_field]
    monkeypatch.setattr(upgrade, "STEPS", [*steps, fail])
    with pytest.raises(KeyboardInterrupt):
        bloomstore.open(golden)
    monkeypatch.setattr(upgrade, "STEPS", steps)
    with bloomstore.open(golden, read_only=True) as store, store._core.catalog.read() as view:
        assert {json.loads(raw)["purpose"] for _, raw in view._scan("filters")} == {"!"}


def test_a_store_that_others_have_open_is_not_upgraded(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        f"import bloomstore, sys; s = bloomstore.open({str(golden)!r}); print(1); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    monkeypatch.setattr(upgrade, "STEPS", [*upgrade.STEPS, add_a_field])
    with pytest.raises(StoreLocked, match="other processes have it open"):
        bloomstore.open(golden)
    other.communicate()
    bloomstore.open(golden).close()
    assert format_of(golden) == upgrade.newest()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_store_is_refused_by_its_number(
    path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    with monkeypatch.context() as later:
        later.setattr(upgrade, "STEPS", [*upgrade.STEPS, add_a_field])
        bloomstore.open(path).close()
    newest = upgrade.newest()
    what = f"format version {newest + 1}, this library reads up to {newest}"
    with pytest.raises(UnsupportedVersion, match=what):
        bloomstore.open(path, read_only=read_only)


def test_segments_of_an_older_version_are_read_beside_new_ones(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header, "VERSION", 2)
    monkeypatch.setitem(header.READERS, 2, header.READERS[1])
    with bloomstore.open(golden) as store:
        store["scalable plain spread"].add_many(range(1000, 2000))
        stages = [stage.file for stage in store["scalable plain spread"].stats().stages]
    versions = [(golden / "segments" / name).read_bytes()[8] for name in stages]
    assert set(versions) == {1, 2}
    with bloomstore.open(golden) as store:
        assert store["scalable plain spread"].may_contain_many([*KEYS, *range(1000, 2000)]).all()
        assert [str(problem) for problem in store.check()] == []
    monkeypatch.undo()
    with bloomstore.open(golden) as store:
        state = store["scalable plain spread"].state
        assert "format version 2, this library reads up to 1" in str(state)
        assert "nobody" in store["scalable plain spread"]
