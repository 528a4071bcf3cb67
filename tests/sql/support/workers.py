"""Processes of worker.py, started for a test and ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

import bloomstore
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
