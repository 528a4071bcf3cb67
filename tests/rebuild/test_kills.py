"""A rebuild that is killed at any moment goes on, and ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.crash import POINTS
from bloomstore.rebuild.state import read_state
from tests.rebuild.sources import make_file
from tests.support.checkout import environment

KEYS = [f"key {number}" for number in range(40_000)]
ROWS = 1000
WORKER = Path(__file__).with_name("worker.py")
SPEC = Scalable(target_error=1e-3, initial_capacity=1000)


def start(store: Path, source: Path, crash_at: str = "") -> subprocess.Popen[str]:
    command = ["rebuild", str(store), "seen", "--from", str(source), "--other-keys"]
    if source.suffix != ".txt":
        command += ["--column", "key"]
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(ROWS), *command],
        env=environment(BLOOMSTORE_CRASH_AT=crash_at),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(store: Path, source: Path) -> str:
    process = start(store, source)
    shown, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    return shown


def make_store(path: Path) -> Path:
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add_many(f"deleted {number}" for number in range(3000))
    return path


def described(path: Path) -> tuple[object, ...]:
    """What must not depend on kills: the answers to everything, and the number of keys."""
    with bloomstore.open(path, create=False) as store:
        assert [str(problem) for problem in store.check()] == []
        assert dict(store.notes) == {}
        seen = store["seen"]
        assert seen.may_contain_many(KEYS).all()
        asked = seen.may_contain_many(np.arange(200_000))
        return seen.stats().keys, len(seen.stats().stages), seen.spec, asked.tobytes()


@pytest.fixture(params=["txt", "parquet"], scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_file(tmp_path_factory.mktemp("source"), request.param, KEYS)


@pytest.fixture(scope="module")
def expected(source: Path) -> tuple[object, ...]:
    path = make_store(source.with_name("uninterrupted"))
    finish(path, source)
    return described(path)


@pytest.mark.parametrize("point", [name for name in POINTS if name.startswith("rebuild")])
def test_killed_at_a_step_it_ends_as_if_uninterrupted(
    path: Path, source: Path, expected: tuple[object, ...], point: str
) -> None:
    make_store(path)
    time_ = 3 if "batch" in point or "position" in point else 1
    process = start(path, source, f"{point}#{time_}")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, f"it never came to {point!r}"
    with bloomstore.open(path) as store:
        store["seen"].add("between the attempts")
    finish(path, source)
    with bloomstore.open(path) as store:
        assert "between the attempts" in store["seen"]
    keys, stages, spec, _ = described(path)
    assert (keys, stages, spec) == (expected[0] + 1, *expected[1:3])  # type: ignore[operator]


def test_killed_at_random_moments_it_ends_as_if_uninterrupted(
    path: Path, source: Path, expected: tuple[object, ...]
) -> None:
    make_store(path)
    kills, resumed = 0, set()
    while kills < 6:
        before = rows_read(path)
        process = start(path, source)
        while process.poll() is None and rows_read(path) == before:
            time.sleep(0.005)
        time.sleep(random.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        if process.returncode == 0:  # it was faster: once more from the beginning
            with bloomstore.open(path) as store:
                store.drop("seen")
            make_store(path)
            continue
        kills += 1
        resumed.add(rows_read(path))
    finish(path, source)
    assert described(path) == expected
    assert len(resumed) > 1, "no kill ever hit a rebuild at work"


def rows_read(path: Path) -> int:
    with bloomstore.open(path, read_only=True) as store:
        state = read_state(store, "seen")
    return 0 if state is None else state.rows


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_what_can_be_resumed_and_says_so(
    path: Path, source: Path, expected: tuple[object, ...], number: signal.Signals
) -> None:
    make_store(path)
    process = start(path, source)
    while not rows_read(path):
        time.sleep(0.01)
    process.send_signal(number)
    _, complaint = process.communicate(timeout=60)
    if process.returncode != 0:  # else it was faster
        assert process.returncode == 130
        assert "rows are kept, the same command continues after them" in complaint
        assert complaint.count("\n") == 1
        assert "of them before" in finish(path, source)
    assert described(path) == expected
