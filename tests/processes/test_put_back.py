"""An older segment file that is put back while processes have the store open, at any size."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed
from bloomstore.errors import StoreLocked
from bloomstore.store.durable import trust
from bloomstore.store.process import open_files as core_module
from tests.support.soundness import assert_sound

EARLY, LATE = range(100), range(100, 300)


@pytest.fixture(params=[True, False], ids=["large", "small"])
def victim(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The segment of a closed store; a large one is not examined as a whole."""
    if request.param:
        monkeypatch.setattr(trust, "READ_WHOLE_BYTES", 0)
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=1000, target_error=0.01)).add_many(EARLY)
    (segment,) = (path / "segments").iterdir()
    shutil.copy(segment, path.with_name("older"))
    return segment


def add_and_put_back(path: Path, victim: Path) -> None:
    """Somebody adds and is killed; then the file gets the bytes that it had before."""
    work = f"""
import os, signal, bloomstore
bloomstore.open({str(path)!r})["seen"].add_many({LATE})
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", work], check=False)
    assert died.returncode == -signal.SIGKILL
    with victim.open("r+b") as file:
        file.write(path.with_name("older").read_bytes())


@pytest.mark.parametrize("read_only", [True, False], ids=["reader", "writer"])
def test_a_process_that_was_there_first_finds_every_key(
    path: Path, victim: Path, read_only: bool
) -> None:
    with bloomstore.open(path, read_only=read_only) as store:
        add_and_put_back(path, victim)
        assert store["seen"].may_contain_many(range(300)).all()
        assert store["seen"].state.is_sound is not read_only
        if not read_only:
            assert not store["seen"].may_contain_many(range(1000, 1100)).all()
            store["seen"].add("next")
    with bloomstore.open(path) as store:
        assert store["seen"].may_contain_many(range(300)).all()
    assert_sound(path)


def test_it_answers_maybe_while_another_process_has_the_lock(
    path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise StoreLocked("another process has held it")

    with bloomstore.open(path) as store:
        add_and_put_back(path, victim)
        with monkeypatch.context() as patch:
            patch.setattr(core_module.Core, "hold", refuse)
            seen = store["seen"]
            assert seen.may_contain_many(range(2000)).all()
            assert "not applied" in str(seen.state)
        assert seen.may_contain_many(range(300)).all()
        assert not seen.may_contain_many(range(1000, 1100)).all()
        assert seen.state.is_sound
    assert_sound(path)
