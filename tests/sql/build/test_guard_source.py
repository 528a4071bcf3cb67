"""Guards and tables as sources of a rebuild: online, resumed, and only with what was proved."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore import Scalable
from bloomstore.cli.main import main
from bloomstore.rebuild import Incomplete, SourceError, rebuild
from bloomstore.rebuild.state import read_state
from bloomstore.rebuild.verify import verify
from bloomstore.sql import Answer, BloomPlugin, GuardedSession
from bloomstore.sql.build import fetch, table_source
from bloomstore.sql.build.guard_source import GuardSource
from bloomstore.sql.build.table_source import SelectSource, TableSource, reflect
from bloomstore.sql.databases import postgresql
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.guards.guard import ActiveGuard
from tests.rebuild.sources import Stop
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.models import Base, Member, Team, User
from tests.sql.support.workers import again_and_again, workers
from tests.support.checkout import ROOT

EMAILS = [f"{number:04}@x" for number in range(500)]


@pytest.fixture
def filled(plugin: BloomPlugin, sessions: sessionmaker[GuardedSession]) -> BloomPlugin:
    """500 users, every other one deleted."""
    with sessions.begin() as session:
        session.add_all([User(email=email) for email in EMAILS])
        session.add_all(
            [Member(team_id=number % 7, name=email) for number, email in enumerate(EMAILS)]
        )
        session.add_all([Team(id=number) for number in range(50)])
    with sessions.begin() as session:
        session.execute(sa.delete(User).where(User.email.in_(EMAILS[::2])))
    return plugin


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_source, "BATCH_ROWS", 30)


def cut_off(plugin: BloomPlugin, engine: sa.Engine, after: int) -> None:
    """A rebuild of users.email that ends in the middle."""

    def stop(name: str, rows: int) -> None:
        if rows >= after:
            raise Stop

    with pytest.raises(Stop):
        plugin.rebuild(engine, User.email, progress=stop)


@contextmanager
def open_snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that goes on seeing the present moment."""
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "REPEATABLE READ"
    with engine.connect().execution_options(isolation_level=level) as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        connection.execute(sa.select(sa.func.count()).select_from(User)).scalar_one()
        yield connection


def test_deleted_keys_vanish_and_the_others_stay(filled: BloomPlugin, engine: sa.Engine) -> None:
    assert filled.probe(User.email, EMAILS[0]) is Answer.MAYBE
    (done,) = filled.rebuild(engine, User.email)
    assert (done.rows, done.keys, done.still) == (250, 250, "")
    absent, ask = filled.partition(User.email, EMAILS)
    assert set(EMAILS[1::2]) <= set(ask)
    assert len(absent) > 240
    assert filled.stats()["users.email"]["deleted_since"] == 0
    assert len(filled.guards["users.email"].filter.stats().stages) == 1
    filled.rebuild(engine)
    assert every_row_is_known(filled, engine) == 1100
    assert {stats["state"] for stats in filled.stats().values()} == {"valid"}


def test_a_guard_that_was_never_built_becomes_valid(
    store: bloomstore.Store, engine: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User), [{"email": email} for email in EMAILS])
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    assert plugin.probe(User.email, "nobody").reason
    plugin.rebuild(engine, spec=Scalable(target_error=1e-4, initial_capacity=3000))
    assert plugin.probe(User.email, "nobody") is Answer.ABSENT
    assert every_row_is_known(plugin, engine) == 1000
    plugin.unlisten()


@pytest.mark.usefixtures("small_batches")
def test_what_was_cut_off_goes_on(
    filled: BloomPlugin, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> None:
    cut_off(filled, engine, 100)
    with sessions.begin() as session:
        session.add(User(email="0000 between the attempts"))
    (done,) = filled.rebuild(engine, User.email)
    assert done.resumed_at >= 100
    assert done.began_again == ""
    assert every_row_is_known(filled, engine)
    assert filled.probe(User.email, EMAILS[-2]) is Answer.ABSENT


@pytest.mark.usefixtures("small_batches")
def test_a_row_whose_primary_key_moves_between_the_attempts_is_not_lost(
    filled: BloomPlugin, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> None:
    """Only its primary key is updated, so nobody adds its email again."""
    cut_off(filled, engine, 100)
    with sessions.begin() as session:
        session.execute(
            sa.update(User).where(User.email == EMAILS[-1]).values(id=-5),
            execution_options={"synchronize_session": False},
        )
    (done,) = filled.rebuild(engine, User.email)
    assert done.resumed_at
    assert every_row_is_known(filled, engine)


@pytest.mark.usefixtures("small_batches")
def test_keys_that_nobody_knows_written_between_the_attempts_begin_it_again(
    filled: BloomPlugin, engine: sa.Engine
) -> None:
    cut_off(filled, engine, 100)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO users (email) VALUES ('0000 unknown')"))
    (done,) = filled.rebuild(engine, User.email)
    assert done.began_again == "rows were written since whose keys are not known"
    assert (done.resumed_at, done.still) == (0, "")
    assert every_row_is_known(filled, engine)


@pytest.mark.usefixtures("small_batches")
def test_a_fence_that_is_raised_meanwhile_stays(filled: BloomPlugin, engine: sa.Engine) -> None:
    guard = filled.guards["users.email"]

    def fence(_: str, rows: int) -> None:
        if rows > 100:
            guard.fence("meanwhile")

    (done,) = filled.rebuild(engine, User.email, progress=fence)
    assert done.still == "fenced: meanwhile"
    assert filled.probe(User.email, "nobody").reason == "fenced: meanwhile"
    assert filled.rebuild(engine, User.email)[0].still == ""
    assert filled.probe(User.email, "nobody") is Answer.ABSENT


def test_the_switch_waits_for_snapshots_that_see_deleted_rows(
    filled: BloomPlugin, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> None:
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with open_snapshot(engine):
        with sessions.begin() as session:
            session.execute(sa.delete(User).where(User.email == EMAILS[1]))
        with pytest.raises(SourceError, match=r"still open after 0\.3 s"):
            filled.rebuild(engine, User.email, patience=0.3)
        assert filled.probe(User.email, EMAILS[1]) is Answer.MAYBE
    (done,) = filled.rebuild(engine, User.email)
    assert done.still == ""
    assert filled.probe(User.email, EMAILS[1]) is Answer.ABSENT


def test_the_scan_waits_for_transactions_that_may_know_only_the_old_filter(
    filled: BloomPlugin, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> None:
    with sessions() as session:
        session.add(User(email="open"))
        session.flush()
        # SQLite has one writer: a rebuild cannot even leave its own mark.
        with pytest.raises(SourceError, match=r"still open after 0\.1 s|is locked"):
            filled.rebuild(engine, User.email, patience=0.1)
        session.commit()
    assert filled.rebuild(engine, User.email)[0].rows == 251
    assert filled.probe(User.email, "open") is Answer.MAYBE


def test_a_snapshot_older_than_the_scan_is_seen_although_it_only_reads(
    engine: sa.Engine, kind: str
) -> None:
    """What the test above relies on: the wait sees the reader itself, not a writer by chance."""
    source = TableSource(engine, reflect(engine, "users"), ["email"])
    if kind == "sqlite":
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with open_snapshot(engine):
        with engine.begin() as connection:
            connection.execute(sa.insert(Team).values(id=1))
        with pytest.raises(SourceError, match="still open"):
            source.settle(0.2)
    source.settle(5)


def test_rows_that_were_counted_and_not_read_are_noticed(
    filled: BloomPlugin, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fetch.parts_of

    def truncated(*arguments: Any) -> Iterator[list[Any]]:
        for part in real(*arguments):
            yield part[:-1]

    monkeypatch.setattr(fetch, "parts_of", truncated)
    with pytest.raises(Incomplete, match="read 249 rows of 250"):
        filled.rebuild(engine, User.email)
    monkeypatch.undo()
    assert filled.probe(User.email, EMAILS[0]) is Answer.MAYBE  # nothing was switched
    assert read_state(filled.store, "users.email") is None


def test_a_column_that_is_altered_meanwhile_is_noticed(
    filled: BloomPlugin, engine: sa.Engine, kind: str
) -> None:
    if kind == "sqlite":
        pytest.skip("SQLite cannot alter a column in place")
    change = {
        "postgresql": "ALTER TABLE users ALTER email TYPE char(70)",
        "mariadb": "ALTER TABLE users MODIFY email varchar(80) COLLATE utf8mb4_bin",
    }[kind]

    def alter(name: str, rows: int) -> None:
        if rows:
            with engine.begin() as connection:
                connection.exec_driver_sql(change)

    with pytest.raises(Incomplete, match="the source has changed: form is"):
        filled.rebuild(engine, User.email, progress=alter)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("names", [("id",), ("email",), ("team_id", "name")])
def test_a_table_gives_every_row_from_every_position(
    filled: BloomPlugin, engine: sa.Engine, names: tuple[str, ...]
) -> None:
    table = reflect(engine, "members" if len(names) > 1 else "users")
    source = TableSource(engine, table, names)
    assert source.why_not_resumable == ""
    with engine.connect() as connection:
        expected = {
            tuple(row) for row in connection.execute(sa.select(*(table.c[n] for n in names)))
        }
    batches = list(source.batches(None))
    wanted = {row if len(row) > 1 else row[0] for row in expected}
    assert {key for batch in batches for key in batch.keys} == wanted
    read: set[Any] = set()
    for batch in batches[::4]:
        read = {key for one in batches[: batches.index(batch) + 1] for key in one.keys}
        rest = {key for later in source.batches(batch.position) for key in later.keys}
        assert read | rest == wanted
        assert len(read & rest) <= 1  # the row at the position itself


def test_without_an_index_a_table_cannot_be_resumed_and_says_so(engine: sa.Engine) -> None:
    source = TableSource(engine, reflect(engine, "users"), ["age"])
    assert source.why_not_resumable == "no index of users begins with age"
    assert SelectSource(engine, "SELECT age FROM users").why_not_resumable


def is_text(guard: ActiveGuard) -> bool:
    return str(guard.form()["types"][0]).lower().startswith("char")


def test_a_guard_by_its_name_needs_no_models_unless_it_keeps_uuids_as_text(
    filled: BloomPlugin,
    engine: sa.Engine,
    url: sa.URL,
    store: bloomstore.Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ["--from", url.render_as_string(hide_password=False)]
    models = [*source, "--models", "tests.sql.support.models:Base"]
    assert main(["rebuild", str(store.path), "users.email", *source]) == 0
    assert filled.probe(User.email, EMAILS[0]) is Answer.ABSENT
    assert main(["rebuild", str(store.path), "members(team_id, name)", *source]) == 0
    capsys.readouterr()
    status = main(["rebuild", str(store.path), "teams.label", *source])
    if not is_text(filled.guards["teams.label"]):  # the database has a type for them
        assert status == 0
    else:
        assert status == 2
        assert "--models MODULE:NAME" in capsys.readouterr().err
    assert filled.guards["teams.label"].why_unknown() == ""  # refusing does it no harm
    assert main(["rebuild", str(store.path), "teams.label", *models]) == 0
    assert main(["rebuild", str(store.path), "nothing", *models]) == 2
    assert every_row_is_known(filled, engine) == 1100
    assert {stats["state"] for stats in filled.stats().values()} == {"valid"}
    capsys.readouterr()
    assert main(["rebuild", str(store.path), "users.id", *source, "--dry-run"]) == 0
    assert "users (id)" in capsys.readouterr().out


def test_a_doubt_of_the_column_refuses_and_fences_nothing(
    filled: BloomPlugin, engine: sa.Engine, kind: str, store: bloomstore.Store
) -> None:
    trigger = {
        "sqlite": "CREATE TRIGGER t AFTER INSERT ON users BEGIN UPDATE users SET age = 1; END",
        "postgresql": "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON users"
        " FOR EACH ROW EXECUTE FUNCTION f()",
        "mariadb": "CREATE TRIGGER t BEFORE INSERT ON users FOR EACH ROW SET NEW.age = 1",
    }[kind]
    other = sa.create_engine(engine.url)
    with other.begin() as connection:
        connection.exec_driver_sql(trigger)
    other.dispose()
    with pytest.raises(SourceError, match="triggers or views may write"):
        GuardSource(store, engine, filled.guards["users.email"].declared)
    assert filled.guards["users.email"].filter.fences == {}


def test_no_row_is_missed_while_others_write(
    checker: BloomPlugin, engine: sa.Engine, url: sa.URL, store: bloomstore.Store
) -> None:
    with workers(url, store.path, "write", "write"):
        again_and_again(checker, engine, lambda: checker.rebuild(engine, patience=30))
    assert every_row_is_known(checker, engine) > 20
    assert {stats["state"] for stats in checker.stats().values()} == {"valid"}


def test_another_running_process_sees_unknown_become_valid(
    checker: BloomPlugin, engine: sa.Engine, url: sa.URL, store: bloomstore.Store
) -> None:
    checker.guards["users.email"].fence("for the test")
    with workers(url, store.path, "ask") as (asking,):
        lines = asking.stdout
        assert lines is not None
        assert next(lines) != "valid\n"  # fenced, and nobody has seen the database here yet
        command = [sys.executable, "-m", "bloomstore", "rebuild", str(store.path), "users.email"]
        subprocess.run(
            [*command, "--from", url.render_as_string(hide_password=False)], check=True, cwd=ROOT
        )
        ends = time.monotonic() + 20
        while (line := next(lines)) != "valid\n":
            assert line.startswith(("fenced", "its database"))
            assert time.monotonic() < ends
    assert checker.probe(User.email, "nobody") is Answer.ABSENT


def test_a_plain_filter_from_a_table(store: bloomstore.Store, filled: BloomPlugin) -> None:
    engine = next(iter(filled._engines))
    store.create("plain", Scalable(target_error=1e-3))
    done = rebuild(store, "plain", TableSource(engine, reflect(engine, "members"), ["name"]))
    assert done.rows == 500
    assert store["plain"].may_contain_many(EMAILS).all()


def test_the_filter_of_a_guard_takes_no_raw_keys(
    filled: BloomPlugin, engine: sa.Engine, store: bloomstore.Store
) -> None:
    """They may be of another form than the guard asks for: a uuid as text, a padded text."""
    source = TableSource(engine, reflect(engine, "teams"), ["label"])
    for act in (rebuild, verify):
        with pytest.raises(SourceError, match="is the filter of a guard"):
            act(store, "teams.label", source)
    own = GuardSource(store, engine, filled.guards["teams.label"].declared)
    assert verify(store, "teams.label", own).missing == 0


def test_verify_names_a_row_that_was_written_unseen(
    filled: BloomPlugin, engine: sa.Engine, store: bloomstore.Store
) -> None:
    unseen = sa.create_engine(engine.url)
    with unseen.begin() as connection:
        connection.execute(sa.insert(User).values(email="unseen"))
    unseen.dispose()
    source = GuardSource(store, engine, filled.guards["users.email"].declared)
    result = verify(store, "users.email", source, probes=1000)
    assert (result.rows, result.first_missing) == (251, ["unseen"])


def test_an_enum_has_no_position(engine: sa.Engine, kind: str) -> None:
    """MariaDB orders it by number and compares it as text."""
    if kind != "mariadb":
        pytest.skip("an ENUM of MariaDB")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE colours (c ENUM('red', 'blue') PRIMARY KEY)")
    source = TableSource(engine, reflect(engine, "colours"), ["c"])
    assert "no position is kept" in source.why_not_resumable


def test_snapshots_of_other_roles_are_waited_for(engine, kind: str) -> None:
    """A role that may not see what others do sees how old their snapshots are."""
    if kind != "postgresql":
        pytest.skip("roles are tested on PostgreSQL")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE modest LOGIN PASSWORD 'modest'")
    modest = sa.create_engine(engine.url.set(username="modest", password="modest"))
    try:
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as reader:
            reader.execute(sa.text("SELECT 1"))
            reader.execute(sa.select(User.id))
            with engine.begin() as connection:
                connection.execute(sa.insert(User).values(email="later@x"))
            with modest.connect() as connection, pytest.raises(StillOpen):
                postgresql.wait_for_readers(connection, 0.3)
        with modest.connect() as connection:
            postgresql.wait_for_readers(connection, 30)
    finally:
        modest.dispose()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP ROLE modest")


def test_a_table_that_was_emptied_leaves_room_for_what_the_guard_declares(
    filled: BloomPlugin, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> None:
    with sessions.begin() as session:
        session.execute(sa.delete(User))
    filled.rebuild(engine)
    declared = 100  # of the guard of users.email
    name = next(name for name in filled.store if "email" in name)
    seen = filled.store[name]
    assert seen.stats().stages[0].capacity == declared
    with sessions.begin() as session:
        session.add_all([User(email=f"{number}@y") for number in range(declared // 2)])
    assert len(seen.stats().stages) == 1
