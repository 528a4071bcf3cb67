"""Several processes write and build at once, and some are killed: no row without its key.

The test itself is the checker: it reads every committed row again and again, and asks for each.
BLOOMSTORE_TEST_SECONDS lengthens the run (the default is a few seconds for each database).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin

from .conftest import every_row_is_known
from .models import Base, User

SECONDS = float(os.environ.get("BLOOMSTORE_TEST_SECONDS", "1"))


@contextmanager
def workers(url: sa.URL, store: Path, *tasks: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of worker.py; each has finished a round when this is entered."""
    running = [start(url, store, task, number) for number, task in enumerate(tasks, 1)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()
        with bloomstore.open(store) as left:  # the next writer applies what a killed one noted
            left.checkpoint()


def start(url: sa.URL, store: Path, task: str, number: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sql.worker",
            url.render_as_string(hide_password=False),
            str(store),
            task,
            str(number),
        ],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTHONPATH": f"{Path(bloomstore.__file__).parents[1]}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"worker {task} ended: {process.wait()}"
    return process


@pytest.fixture
def checker(engine: sa.Engine, url: sa.URL, store: bloomstore.Store, tmp_path: Path) -> BloomPlugin:
    """A plugin of this process, built, on a database that several processes can use."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        sa.event.listen(
            engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 20000")
        )
        engine.dispose()
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    return plugin


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
