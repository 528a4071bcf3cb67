"""The promise as a check: what was acknowledged is found, nothing is wrong, errors are low."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import bloomstore

WORKLOAD = Path(__file__).parent / "workload.py"
NEGATIVES = 20_000


def run_workload(path: Path, *arguments: str, crash_at: str = "") -> tuple[int, list[str]]:
    """Runs the workload until it ends or dies; returns its exit status and what it acknowledged."""
    done = subprocess.run(
        [sys.executable, WORKLOAD, path, *arguments],
        env=os.environ | {"BLOOMSTORE_CRASH_AT": crash_at},
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.returncode, done.stdout.decode().splitlines()


def acknowledged(lines: list[str]) -> dict[str, set[str]]:
    """Keys that must be found, by filter."""
    keys: dict[str, set[str]] = {}
    for line in lines:
        step = json.loads(line)
        if "added" in step:
            name, added = step["added"]
            keys.setdefault(name, set()).update(added)
        elif "replacing" in step:
            name, left = step["replacing"]
            keys[name] = set(left)
        elif "dropping" in step:
            keys.pop(step["dropping"], None)
    return keys


def assert_promise_kept(path: Path, lines: list[str]) -> None:
    """Opens the store like its next user and compares it with what was acknowledged."""
    with bloomstore.open(path) as store:
        for name, keys in acknowledged(lines).items():
            users = store[name]
            missing = [key for key in keys if key not in users]
            assert not missing, f"{name}: {len(missing)} acknowledged keys lost: {missing[:3]}"
            found = users.may_contain_many(sorted(keys))
            assert found.all(), f"{name}: a batch lookup loses keys"
        for name in store:
            users = store[name]
            assert users.state.is_sound, f"{name}: {users.state}"
            wrong = np.count_nonzero(users.may_contain_many(np.arange(NEGATIVES)))
            # Five standard deviations above what is promised: a store that has degraded to
            # "always maybe" or lost count of its fill fails, chance does not.
            promised = NEGATIVES * users.stats().target_error
            assert wrong <= promised + 5 * promised**0.5, f"{name}: {wrong} of {NEGATIVES}"
        problems = [str(problem) for problem in store.check()]
        assert not problems, problems
    with bloomstore.open(path, read_only=True) as store:
        assert [str(problem) for problem in store.check()] == []


def assert_goes_on(path: Path) -> None:
    """The store takes new keys as if nothing had happened."""
    with bloomstore.open(path) as store:
        for name in store:
            store[name].add("the next day")
            assert "the next day" in store[name]
