"""Asked right after another program's commit, a fed guard never says ABSENT for its row.

And the race is worth something: each catch-up that is broken on purpose loses keys in it.
BLOOMSTORE_TEST_SECONDS lengthens the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin
from bloomstore.sql.databases import snapshot_sql
from bloomstore.sql.outbox import catch_up as feed_module
from bloomstore.sql.schema.outbox_tables import outbox_name
from tests.sql.support import outbox_models as fed
from tests.sql.support.kinds import only_postgresql
from tests.sql.support.outbox_models import Parcel
from tests.support.checkout import environment

SECONDS = float(os.environ.get("BLOOMSTORE_TEST_SECONDS", "1"))
WRITERS = 4
ENOUGH = 20  # rows to ask for, however slow the machine is
pytestmark = only_postgresql


@pytest.fixture
def plugins(engine: sa.Engine, store: bloomstore.Store) -> Iterator[list[BloomPlugin]]:
    """Two askers of one store: each has its own position."""
    fed.make(engine)
    plugins = [BloomPlugin(store, fed.FedBase.metadata) for _ in range(2)]
    for plugin in plugins:
        plugin.listen(engine)
    plugins[0].build(engine)
    yield plugins
    for plugin in plugins:
        plugin.unlisten()
    fed.unmake(engine)


def race(
    plugins: list[BloomPlugin], engine: sa.Engine, *, until_missed: bool, seconds: float
) -> tuple[int, int, int]:
    """How many rows were asked for, how many of them were missed, how many others were absent."""
    raw = engine.raw_connection()
    conninfo = raw.driver_connection.info.dsn  # type: ignore[union-attr]
    raw.close()
    counts = {"asked": 0, "missed": 0, "absent": 0}
    lock = threading.Lock()
    ends = time.monotonic() + seconds
    failed: list[BaseException] = []

    def follow(number: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.sql.support.outbox_writer", conninfo, str(number)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        plugin = plugins[number % 2]
        try:
            while time.monotonic() < ends or counts["asked"] <= ENOUGH:
                if until_missed and counts["missed"]:
                    break
                key = int(process.stdout.readline())
                with engine.connect() as connection:
                    answer = plugin.probe(Parcel.id, key, connection=connection)
                    other = plugin.probe(Parcel.id, -key, connection=connection)
                with lock:
                    counts["asked"] += 1
                    counts["missed"] += answer is Answer.ABSENT
                    counts["absent"] += other is Answer.ABSENT
                print(file=process.stdin, flush=True)
        except BaseException as error:  # noqa: BLE001  told to the test
            failed.append(error)
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(1, WRITERS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    return counts["asked"], counts["missed"], counts["absent"]


def set_synchronous(engine: sa.Engine, value: str) -> None:
    """For connections that come: those of the writers."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE postgres SET synchronous_commit = {value}")


@pytest.mark.parametrize("synchronous", ["on", "off"])
def test_no_row_is_missed(plugins, engine, synchronous: str) -> None:
    set_synchronous(engine, synchronous)
    asked, missed, absent = race(plugins, engine, until_missed=False, seconds=SECONDS)
    set_synchronous(engine, "on")
    print(f"synchronous_commit {synchronous}: asked {asked}, missed {missed}, absent {absent}")
    assert missed == 0
    assert asked > ENOUGH
    assert absent > asked // 2  # a guard that never says ABSENT misses nothing either


def _takes_xmax(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(feed_module, "XMIN", snapshot_sql.XMAX)


def _shares_a_catch_up(patch: pytest.MonkeyPatch) -> None:
    """The first transaction's catch-up serves all later ones."""
    honest = feed_module.Feed.catch_up
    done: set[int] = set()

    def shared(self: Any, connection: Any) -> str:
        if id(self) in done:
            return ""
        done.add(id(self))
        return honest(self, connection)

    patch.setattr(feed_module.Feed, "catch_up", shared)


def _goes_on_after_the_greatest(patch: pytest.MonkeyPatch) -> None:
    """The position is behind the greatest transaction that was seen."""
    greatest = "(SELECT coalesce(max(x.xid), 0) + 1 FROM {} x)"
    patch.setattr(feed_module, "XMIN", greatest.format(outbox_name("parcels.id")))


BROKEN = [_takes_xmax, _shares_a_catch_up, _goes_on_after_the_greatest]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_race_finds_a_broken_catch_up(plugins, engine, broken, monkeypatch) -> None:
    broken(monkeypatch)
    asked, missed, _ = race(plugins, engine, until_missed=True, seconds=60)
    print(f"{broken.__name__}: missed {missed} of {asked}")
    assert missed
