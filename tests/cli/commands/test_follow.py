"""`bloomstore follow`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.sql import BloomPlugin, Guard
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import Outbox
from tests.cli.runner import Cli
from tests.support.checkout import environment


@pytest.fixture
def url(tmp_path: Path, new_store: Path) -> Iterator[str]:
    """A database with a guard, built, and one row that it has not seen."""
    url = f"sqlite:///{tmp_path}/app.db"
    migrate.upgrade(url)
    metadata = sa.MetaData()
    guard = {"bloomstore": Guard(feed="outbox", staleness=9)}
    table = sa.Table("users", metadata, sa.Column("id", sa.Integer, primary_key=True, info=guard))
    engine = sa.create_engine(url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        for statement in Outbox("users.id", "users", ["id"], None, engine.dialect).create():
            connection.exec_driver_sql(statement)
    with bloomstore.open(new_store) as store:
        plugin = BloomPlugin(store, metadata)
        plugin.listen(engine)
        plugin.build(engine)
        plugin.unlisten()
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=7))
    yield url
    engine.dispose()


def test_a_pass_tells_what_it_did(cli: Cli, url: str, new_store: Path) -> None:
    assert cli.ok("follow", url, new_store, "--once").out == "users.id: 1 key, 1 purged\n"
    passed = {"guard": "users.id", "keys": 0, "purged": 0, "doubt": ""}
    assert cli.ok("follow", url, new_store, "--once", "--json").json == {"passes": [passed]}
    with bloomstore.open(new_store, read_only=True) as opened:
        assert 7 in opened["users.id"]


def test_a_guard_that_is_left_alone_is_status_1(cli: Cli, url: str, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened["users.id"].fence("for the test")
    result = cli("follow", url, store, "--once")
    assert (result.status, result.out) == (1, "users.id: fenced: for the test\n")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["URL", "STORE", "--every", "0"], "--every is a number of seconds above 0, got 0"),
        (["URL", "STORE", "--json"], "--json is for --once"),
        (["URL", "missing"], "/missing"),
        (["sqlite:////nowhere/at/all.db", "STORE", "--once"], "all.db: there is no such file"),
    ],
)
def test_errors_are_one_line(
    cli: Cli, url: str, new_store: Path, argv: list[str], words: str
) -> None:
    known = {"URL": url, "STORE": str(new_store)}
    result = cli("follow", *[known.get(word, word) for word in argv])
    assert (result.status, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_an_interruption_ends_it_cleanly(url: str, new_store: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bloomstore", "follow", url, str(new_store), "--every", "0.05"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "users.id: followed\n"
    ends = time.monotonic() + 60
    with bloomstore.open(new_store, read_only=True) as store:
        while 7 not in store["users.id"] and time.monotonic() < ends:
            time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "bloomstore: stopped, 1 key followed\n"
