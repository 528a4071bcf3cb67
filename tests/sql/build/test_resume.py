"""A rebuild that was cut off goes on only with what is proved to be the same source."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore import Scalable
from bloomstore.rebuild import RebuildError, rebuild
from bloomstore.rebuild.order import Rebuilt
from bloomstore.sql import BloomPlugin
from bloomstore.sql.build import table_source
from bloomstore.sql.build.table_source import TableSource, reflect
from tests.rebuild.sources import Stop
from tests.sql.support.kinds import only_mariadb, only_servers, only_sqlite
from tests.sql.support.models import User

SPEC = Scalable(target_error=1e-3, initial_capacity=1000)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_source, "BATCH_ROWS", 30)


def source_of(engine: sa.Engine, table: str, column: str) -> TableSource:
    """As a command would have it."""
    return TableSource(engine, reflect(engine, table), [column])


def cut_off(store: bloomstore.Store, source: TableSource, after: int) -> None:
    def stop(rows: int) -> None:
        if rows >= after:
            raise Stop

    with pytest.raises(Stop):
        rebuild(store, "plain", source, progress=stop)


def fill(engine: sa.Engine, keys: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User), [{"email": key} for key in keys])


@only_sqlite
@pytest.mark.parametrize("in_place", [True, False])
def test_a_replaced_sqlite_file_is_read_from_the_beginning(
    store: bloomstore.Store, engine: sa.Engine, tmp_path: Path, in_place: bool
) -> None:
    fill(engine, [f"m{n:03}" for n in range(200)])
    file, other = Path(str(engine.url.database)), tmp_path / "other.db"
    engine.dispose()
    shutil.copy(file, other)
    with sa.create_engine(f"sqlite:///{other}").begin() as connection:
        connection.execute(sa.update(User).where(User.email < "m100").values(age=1))
        connection.execute(sa.insert(User).values(email="a behind the position"))
    store.create("plain", SPEC)
    cut_off(store, source_of(engine, "users", "email"), 100)
    engine.dispose()
    if in_place:
        shutil.copy(other, file)
    else:
        other.replace(file)
    if not in_place:
        with pytest.raises(RebuildError, match="another source: file"):
            rebuild(store, "plain", source_of(engine, "users", "email"))
    done = rebuild(store, "plain", source_of(engine, "users", "email"), restart=not in_place)
    assert not in_place or "nothing proves" in done.began_again
    assert "a behind the position" in store["plain"]


@only_sqlite
def test_an_untouched_sqlite_file_goes_on(store: bloomstore.Store, engine: sa.Engine) -> None:
    fill(engine, [f"m{n:03}" for n in range(200)])
    store.create("plain", SPEC)
    cut_off(store, source_of(engine, "users", "email"), 100)
    engine.dispose()
    done = rebuild(store, "plain", source_of(engine, "users", "email"))
    assert (done.rows > 200, done.resumed_at > 0) == (True, True)  # one row comes again


@only_servers
def test_a_table_that_was_made_anew_is_not_gone_on_with(
    store: bloomstore.Store, engine: sa.Engine, kind: str
) -> None:
    make = "CREATE TABLE letters (k varchar(40) primary key)"
    with engine.begin() as connection:
        connection.exec_driver_sql(make)
        connection.exec_driver_sql("INSERT INTO letters SELECT concat('m', id) FROM users")
        for n in range(200):
            connection.exec_driver_sql(f"INSERT INTO letters VALUES ('m{n:03}')")
    store.create("plain", SPEC)
    cut_off(store, source_of(engine, "letters", "k"), 100)
    if kind == "mariadb":  # its clock of tables has seconds
        time.sleep(1.1)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE letters")
        connection.exec_driver_sql(make)
        connection.exec_driver_sql("INSERT INTO letters VALUES ('a'), ('m000')")
    with pytest.raises(RebuildError, match="another source: mark is"):
        rebuild(store, "plain", source_of(engine, "letters", "k"))
    assert rebuild(store, "plain", source_of(engine, "letters", "k"), restart=True).rows == 2
    assert "a" in store["plain"]


@only_mariadb
@pytest.mark.parametrize("collation", ["utf8mb4_bin", "utf8mb4_unicode_ci"])
def test_texts_that_the_server_sorts_by_their_beginning_are_all_read(
    store: bloomstore.Store, engine: sa.Engine, collation: str
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TABLE longs (k varchar(2000) COLLATE {collation}, INDEX (k(20)))"
        )
        keys = [f"{'x' * 1100}{number:03}" for number in reversed(range(200))]
        connection.execute(sa.text("INSERT INTO longs VALUES (:k)"), [{"k": key} for key in keys])
    store.create("plain", SPEC)
    cut_off(store, source_of(engine, "longs", "k"), 100)
    done = rebuild(store, "plain", source_of(engine, "longs", "k"))
    assert done.resumed_at == 0
    assert [key for key in keys if key not in store["plain"]] == []


def test_cut_off_behind_the_switch_a_guard_is_read_again(
    plugin: BloomPlugin, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine, [f"m{n:03}" for n in range(50)])

    def stop(*given: object) -> None:
        raise Stop

    monkeypatch.setattr("bloomstore.sql.build.guard_source.GuardOwner.finish", stop)
    with pytest.raises(Stop):
        plugin.rebuild(engine, User.email)
    monkeypatch.undo()
    other = sa.create_engine(engine.url)  # nobody listens
    fill(other, ["written unseen"])
    other.dispose()
    (done,) = plugin.rebuild(engine, User.email)
    assert isinstance(done, Rebuilt)
    assert (done.rows, done.still) == (51, "")
    assert "it had ended" in done.began_again
    assert plugin.probe(User.email, "written unseen").name == "MAYBE"
