"""Several processes write and build at once, and some are killed: no row without its key.

The test itself is the checker: it reads every committed row again and again, and asks for each.
BLOOMSTORE_TEST_SECONDS lengthens the run (the default is a few seconds for each database).
"""

from __future__ import annotations

import random
import signal
import time

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.models import User
from tests.sql.support.workers import SECONDS, start, workers


def watch(checker: BloomPlugin, engine: sa.Engine, seconds: float) -> tuple[int, int]:
    """Compares all rows with the guards for a while; returns rows at the end, absent answers."""
    ends = time.monotonic() + seconds
    absent = 0
    while True:
        rows = every_row_is_known(checker, engine)
        answers = [checker.probe(User.email, f"nobody{n}@y") for n in range(50)]
        absent += answers.count(Answer.ABSENT)
        if time.monotonic() > ends:
            return rows, absent


@pytest.mark.parametrize(
    "tasks", [("write", "write"), ("write", "build"), ("mixed", "build")], ids="+".join
)
def test_a_checker_never_misses_a_row(
    checker: BloomPlugin,
    engine: sa.Engine,
    url: sa.URL,
    store: bloomstore.Store,
    tasks: tuple[str, ...],
) -> None:
    with workers(url, store.path, *tasks) as running:
        rows, absent = watch(checker, engine, SECONDS)
        assert all(process.poll() is None for process in running)
    assert rows > 20
    # A guard that always says UNKNOWN misses nothing either; a build raises a fence, too.
    assert absent > 0 or "build" in tasks
    checker.build(engine, patience=20)
    assert checker.probe(User.email, "nobody@y") is Answer.ABSENT
    every_row_is_known(checker, engine)


def test_killed_writers_leave_no_row_without_its_key(
    checker: BloomPlugin, engine: sa.Engine, url: sa.URL, store: bloomstore.Store
) -> None:
    random.seed(4)
    with workers(url, store.path, "write", "mixed") as running:
        for number in range(3, 3 + round(1.5 * SECONDS)):
            time.sleep(random.uniform(0.05, 0.3))
            victim = running.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            every_row_is_known(checker, engine)
            running.append(start(url, store.path, "write" if number % 2 else "mixed", number))
    rows = every_row_is_known(checker, engine)
    assert rows > 5
    checker.build(engine, patience=20)
    assert checker.probe(User.email, "nobody@y") is Answer.ABSENT
    every_row_is_known(checker, engine)


def test_a_guard_becomes_valid_in_other_running_processes(
    checker: BloomPlugin, engine: sa.Engine, url: sa.URL, store: bloomstore.Store
) -> None:
    checker.guards["users.email"].fence("for the test")
    assert checker.probe(User.email, "nobody@y") == Answer.UNKNOWN
    with workers(url, store.path, "build"):
        ends = time.monotonic() + 20
        while checker.probe(User.email, "nobody@y") is not Answer.ABSENT:
            assert time.monotonic() < ends
            time.sleep(0.02)
