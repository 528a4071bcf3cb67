"""First steps: a filter in front of an SQLite table, killed in the middle, and nothing lost.

Run it from a checkout: `python tools/first_steps.py [FOLDER]`. It makes a table of users and a
filter of their names, kills the writing process without warning, reopens the filter, and counts
how many queries the filter saves. Everything it prints was measured in this run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bloomstore
from bloomstore import Scalable

USERS = 20_000
QUESTIONS = 20_000


def write_until_killed(folder: Path) -> None:
    """Adds users to filter and table, first the filter, and reports each batch; never ends."""
    database = sqlite3.connect(folder / "users.sqlite")
    database.execute("create table if not exists users (name text primary key)")
    with bloomstore.open(folder / "filters") as store:
        names = store.ensure("names", Scalable(target_error=0.001, initial_capacity=1000))
        for first in range(0, USERS, 100):
            batch = [f"user {number}" for number in range(first, first + 100)]
            names.add_many(batch)  # durable when it returns, so the row can never be ahead
            database.executemany("insert into users values (?)", [(name,) for name in batch])
            database.commit()
            print(first + 100, flush=True)
    signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="where files stay (default: nowhere)")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_until_killed(arguments.folder)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        command = [sys.executable, __file__, "--write", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            done = 0
            for line in writer.stdout:
                done = int(line)
                if done >= USERS * 3 // 4:
                    os.kill(writer.pid, signal.SIGKILL)
                    break
        print(f"a process added {done} users and was killed without warning")
        look(folder)


def look(folder: Path) -> None:
    """Reopens filter and table, compares them, and asks both."""
    database = sqlite3.connect(folder / "users.sqlite")
    rows = [name for (name,) in database.execute("select name from users")]
    with bloomstore.open(folder / "filters") as store:
        names = store["names"]
        missing = len(rows) - int(names.may_contain_many(rows).sum())
        problems = len(list(store.check()))
        print(f"reopened: {len(rows)} rows in the table, {missing} of them unknown to the filter,")
        print(f"          {problems} problems found in the store")

        strangers = [f"stranger {number}" for number in range(QUESTIONS)]
        select = "select name from users where name = ?"
        begin = time.perf_counter()
        for name in strangers:
            database.execute(select, (name,)).fetchone()
        unguarded = time.perf_counter() - begin
        queries = 0
        begin = time.perf_counter()
        for name in strangers:
            if name in names:
                queries += 1
                database.execute(select, (name,)).fetchone()
        guarded = time.perf_counter() - begin
        stats = names.stats()
        print(f"{QUESTIONS} questions for absent names: {queries} queries instead of {QUESTIONS},")
        print(f"          {unguarded / guarded:.1f} times faster (kernels: {kernels()})")
        print(
            f"the filter: {stats.keys} keys, {len(stats.stages)} stages, {stats.bits // 8192} KiB,"
        )
        print(f"          error now {stats.error_rate:.2g}, promised {stats.target_error:.2g}")
    if missing or problems:
        sys.exit("something is wrong: please report it")


def kernels() -> str:
    """Which kernels answered."""
    from bloomstore.kernels import BACKEND

    return BACKEND


if __name__ == "__main__":
    main()
