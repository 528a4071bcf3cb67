"""Processes of worker.py, started for a test and ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

import bloomstore
from bloomstore.sql import BloomPlugin
from tests.sql.support.checks import every_row_is_known
from tests.support.checkout import environment

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
            "tests.sql.support.worker",
            url.render_as_string(hide_password=False),
            str(store),
            task,
            str(number),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"worker {task} ended: {process.wait()}"
    return process


def again_and_again(checker: BloomPlugin, engine: sa.Engine, act: Callable[[], object]) -> None:
    """Acts for SECONDS, and at least twice; after each time every row must be known."""
    ends = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < ends or rounds < 2:
        act()
        rounds += 1
        every_row_is_known(checker, engine)
