"""Guards that are fed by an outbox: what others write is known, no plugin is at the writer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.rebuild import SourceError
from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession
from bloomstore.sql.build.guard_source import GuardSource
from bloomstore.sql.guards.trust import INVALID
from bloomstore.sql.outbox import catch_up as feed_module
from bloomstore.sql.outbox import position
from bloomstore.sql.outbox.follower import Follower
from bloomstore.sql.schema.outbox_tables import Outbox, outbox_name
from tests.sql.support import outbox_models as fed
from tests.sql.support.checks import Sent
from tests.sql.support.kinds import not_postgresql, only_postgresql, only_sqlite
from tests.sql.support.outbox_models import Parcel, asked, insert, listening, write


@pytest.fixture
def sessions(plugin: BloomPlugin, asking: sa.Engine) -> sessionmaker[GuardedSession]:
    made = sessionmaker(asking, class_=GuardedSession)
    plugin.listen(made)
    return made


@only_postgresql
def test_a_row_of_another_writer_is_known_in_the_next_transaction(world, asking, plugin) -> None:
    assert asked(asking, plugin, Parcel.code, "a") is Answer.ABSENT
    write(world, insert(1, "a"))
    assert asked(asking, plugin, Parcel.code, "a") is Answer.MAYBE
    assert asked(asking, plugin, Parcel.id, 1) is Answer.MAYBE
    assert asked(asking, plugin, Parcel.id, 2) is Answer.ABSENT
    write(world, "UPDATE parcels SET code = 'b'", "UPDATE parcels SET note = 'x'")
    assert asked(asking, plugin, Parcel.code, "b") is Answer.MAYBE


@only_postgresql
def test_keys_of_an_outbox_do_not_wait_for_the_end_of_a_batch(
    world, asking, plugin, store, monkeypatch
) -> None:
    monkeypatch.setattr(position, "KEYS_PER_NOTE", 1)
    write(world, insert(1, "a"))
    with pytest.raises(RuntimeError, match="of the application"), store.batch():
        for _ in range(3):  # until what was read is on the server's disk
            assert asked(asking, plugin, Parcel.code, "a") is Answer.MAYBE
            write(world, "CHECKPOINT")
        with ThreadPoolExecutor() as others:
            task = others.submit(asked, asking, plugin, Parcel.code, "a")
            assert task.result() is Answer.MAYBE
        raise RuntimeError("of the application")
    assert asked(asking, plugin, Parcel.code, "a") is Answer.MAYBE


@only_postgresql
def test_sessions_catch_up_once_in_each_transaction(world, asking, sessions) -> None:
    write(world, insert(1, "a"))
    sent = Sent(asking)
    by_code = select(Parcel).where(Parcel.code == "zz").options(Guarded())
    with sessions() as session:
        assert session.get(Parcel, 2) is None
        assert session.get(Parcel, 3) is None
        assert sent() == 1
        assert session.scalars(by_code).all() == []
        assert session.scalars(by_code).all() == []
        assert sent() == 1
        assert session.get(Parcel, 1).code == "a"
    with sessions() as session:
        write(world, insert(2, "b"))
        sent()
        assert session.get(Parcel, 2).code == "b"
        assert sent() == 2  # the outbox and the row


@only_postgresql
def test_own_writes_count_whatever_a_trigger_makes_of_them(world, asking, plugin, sessions) -> None:
    write(
        world,
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN NEW.code = upper(NEW.code); RETURN NEW; END'",
        "CREATE TRIGGER shout BEFORE INSERT ON parcels FOR EACH ROW EXECUTE FUNCTION shout()",
    )
    try:
        plugin.build(asking)  # a new connection would see the trigger; it does no harm here
        with sessions() as session:
            loud = select(Parcel).where(Parcel.code == "LOUD").options(Guarded())
            assert session.scalars(loud).all() == []
            session.execute(sa.insert(Parcel).values(id=1, code="loud"))
            assert len(session.scalars(loud).all()) == 1
            session.rollback()
        with sessions() as session:
            assert session.get(Parcel, 2) is None
            session.execute(sa.text("INSERT INTO parcels (id) VALUES (2)"))
            assert session.get(Parcel, 2) is not None
            session.commit()
        assert asked(asking, plugin, Parcel.id, 3) is Answer.ABSENT  # and no fence was raised
    finally:
        write(world, "DROP FUNCTION shout() CASCADE")


@only_postgresql
def test_under_autocommit_each_question_catches_up(world, asking, plugin) -> None:
    with asking.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert plugin.probe(Parcel.id, 1, connection=connection) is Answer.ABSENT
        write(world, insert(1, "a"))
        assert plugin.probe(Parcel.id, 1, connection=connection) is Answer.MAYBE


@only_postgresql
def test_repeatable_read_is_exact_and_a_transaction_before_the_build_is_not_answered(
    world, asking, plugin
) -> None:
    repeatable = asking.execution_options(isolation_level="REPEATABLE READ")
    with repeatable.connect() as old:
        old.exec_driver_sql("SELECT count(*) FROM parcels")
        write(world, insert(1, "a"))
        assert (
            plugin.probe(Parcel.id, 1, connection=old) is Answer.ABSENT
        )  # nor does a query see it
        with repeatable.connect() as new:
            assert plugin.probe(Parcel.id, 1, connection=new) is Answer.MAYBE
    with repeatable.connect() as old:
        old.exec_driver_sql("SELECT count(*) FROM parcels")
        guard = plugin.guards["parcels.id"]
        note = guard.record()
        note.feed = dict(note.feed, build="later", xmax=note.feed["xmax"] + 1000)
        guard.write_record(note)  # as a build would that begins now
        answer = plugin.probe(Parcel.id, 7, connection=old)
        assert (answer, answer.reason) == (
            Answer.UNKNOWN,
            "the transaction is older than the build",
        )


@only_postgresql
def test_without_a_transaction_the_answer_is_unknown(plugin) -> None:
    answer = plugin.probe(Parcel.id, 5)
    assert answer == Answer.UNKNOWN
    assert "in a transaction" in answer.reason
    assert plugin.partition(Parcel.id, [5, 6]) == ([], [5, 6])


@only_postgresql
def test_partition_catches_up(world, asking, plugin) -> None:
    write(world, insert(5, "a"))
    with asking.connect() as connection:
        found = plugin.partition(Parcel.id, [5, 6], connection=connection)
    assert found == ([6], [5])


@only_postgresql
def test_a_position_outlives_the_process(world, asking, store, plugin, monkeypatch) -> None:
    monkeypatch.setattr(position, "KEYS_PER_NOTE", 3)
    write(world, *(insert(number, "a") for number in range(4)))
    assert asked(asking, plugin, Parcel.id, 9) is Answer.ABSENT
    again = listening(store, asking)
    feed: Any = again.guards["parcels.id"].feed
    snapshot = feed.position.snapshot()
    assert feed.position.of(snapshot) > snapshot.xmin
    assert asked(asking, again, Parcel.id, 3) is Answer.MAYBE
    again.unlisten()


@only_postgresql
def test_purged_keys_put_the_guard_in_doubt_until_it_is_built(world, asking, plugin) -> None:
    write(world, insert(1, "a"))
    write(
        world,
        f"DELETE FROM {outbox_name('parcels.id')}",
        "UPDATE bloomstore_guards SET floor = CAST(CAST(pg_current_xact_id() AS text) AS bigint)"
        " WHERE name = 'parcels.id'",
    )
    assert asked(asking, plugin, Parcel.id, 1).reason == feed_module.PURGED.text
    assert asked(asking, plugin, Parcel.code, "zz") is Answer.ABSENT
    assert plugin.build(asking)
    assert asked(asking, plugin, Parcel.id, 1) is Answer.MAYBE
    assert asked(asking, plugin, Parcel.id, 2) is Answer.ABSENT


@only_postgresql
def test_a_delta_that_is_too_long_is_doubt(world, asking, plugin, monkeypatch) -> None:
    monkeypatch.setattr(feed_module, "LONGEST", 3)
    write(world, *(insert(number, "a") for number in range(4)))
    assert asked(asking, plugin, Parcel.id, 9).reason == feed_module.BEHIND.text
    assert plugin.build(asking)
    assert asked(asking, plugin, Parcel.id, 9) is Answer.ABSENT


@only_postgresql
def test_an_outbox_that_was_made_anew_is_not_believed(world, asking, plugin) -> None:
    outbox = Outbox("parcels.id", "parcels", ["id"], None, world.dialect)
    write(world, *outbox.drop())
    write(world, insert(1, "a"))
    write(world, *outbox.create())
    assert asked(asking, plugin, Parcel.id, 1).reason == INVALID.text
    assert plugin.build(asking)
    assert asked(asking, plugin, Parcel.id, 1) is Answer.MAYBE
    assert asked(asking, plugin, Parcel.id, 2) is Answer.ABSENT


@not_postgresql
def test_elsewhere_there_is_no_answer_without_an_opt_in(plugin, asking) -> None:
    assert asked(asking, plugin, Parcel.id, 1).reason == feed_module.NO_ANSWER
    assert "no follower" in asked(asking, plugin, Parcel.code, "a").reason


def test_a_feed_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"feed": "tail"}, {"staleness": 3}, {"feed": "outbox", "staleness": 0}):
        with pytest.raises(SpecError, match=r"feed|staleness"):
            Guard(**wrong)


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
@only_postgresql
def test_async_sessions_catch_up(
    driver: str, world, store, running: Callable[[str], sa.URL]
) -> None:
    async def live() -> None:
        engine = create_async_engine(world.url.set(drivername=driver))
        sessions: Any = async_sessionmaker(
            engine, class_=AsyncSession, sync_session_class=GuardedSession
        )
        plugin = BloomPlugin(store, fed.FedBase.metadata)
        plugin.listen(engine, sessions)
        await plugin.build_async(engine)
        sent = Sent(engine.sync_engine)
        async with sessions() as session:
            assert await session.get(Parcel, 1) is None
            assert await session.get(Parcel, 2) is None
            assert sent() == 1
        write(world, insert(1, "a"))
        async with sessions() as session:
            assert (await session.get(Parcel, 1)).code == "a"
            sent()
            absent = select(Parcel).where(Parcel.code == "zz").options(Guarded())
            assert (await session.scalars(absent)).all() == []
            assert sent() == 1
        plugin.unlisten()
        await engine.dispose()

    asyncio.run(live())


@only_postgresql
def test_a_rebuild_goes_on_with_the_outbox(world, asking, plugin, monkeypatch) -> None:
    """Rows that others write before, during and after the scan are known; deleted ones are not."""
    write(world, *(insert(number, f"c{number}") for number in range(50)))
    assert asked(asking, plugin, Parcel.id, 9) is Answer.MAYBE
    write(world, "DELETE FROM parcels WHERE id < 10")
    real = GuardSource.settle

    def settle(self: GuardSource, patience: float) -> None:
        write(world, insert(100, "during"))
        real(self, patience)

    monkeypatch.setattr(GuardSource, "settle", settle)
    plugin.rebuild(asking, Parcel.id)
    write(world, insert(101, "after"))
    assert {asked(asking, plugin, Parcel.id, n) for n in (10, 49, 100, 101)} == {Answer.MAYBE}
    assert asked(asking, plugin, Parcel.id, 9) is Answer.ABSENT


@only_postgresql
def test_a_rebuild_makes_a_fed_guard_valid_that_never_was_built(
    world, asking, store, plugin
) -> None:
    store.drop("parcels.id")
    del store.notes["guard/parcels.id"]
    fresh = listening(store, asking)
    write(world, insert(1, "a"))
    fresh.rebuild(asking, Parcel.id)
    write(world, insert(2, "b"))
    assert {asked(asking, fresh, Parcel.id, number) for number in (1, 2)} == {Answer.MAYBE}
    assert asked(asking, fresh, Parcel.id, 3) is Answer.ABSENT
    fresh.unlisten()


@only_postgresql
def test_an_invalidation_during_a_rebuild_is_noticed(world, asking, plugin, monkeypatch) -> None:
    real = GuardSource._keys

    def keys(self: GuardSource, part: list[Any]) -> list[Any]:
        write(world, "UPDATE bloomstore_guards SET epoch = epoch + 1 WHERE name = 'parcels.id'")
        return real(self, part)

    write(world, insert(1, "a"))
    monkeypatch.setattr(GuardSource, "_keys", keys)
    with pytest.raises(SourceError, match="epoch"):
        plugin.rebuild(asking, Parcel.id)
    assert asked(asking, plugin, Parcel.id, 2).name == "UNKNOWN"
    monkeypatch.undo()
    plugin.rebuild(asking, Parcel.id)
    assert asked(asking, plugin, Parcel.id, 2) is Answer.ABSENT


def as_captured(store: bloomstore.Store, engine: sa.Engine) -> tuple[BloomPlugin, Any]:
    """Another release, in which the same column is guarded without an outbox."""
    table = sa.Table(
        "parcels",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("code", fed.Parcel.__table__.c.code.type, info={"bloomstore": Guard()}),
    )
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    return plugin, table.c.code


@pytest.mark.parametrize("form", ["build", "rebuild"])
def test_a_release_without_the_outbox_believes_in_no_filter_that_has_one(
    store, world, plugin, asking, form
) -> None:
    write(world, insert(1, "unread"))
    other = sa.create_engine(world.url)
    without, code = as_captured(store, other)
    assert without.probe(code, "unread") is not Answer.ABSENT
    if form == "build":
        without.build(other)
    else:
        without.rebuild(other)
        without.probe(code, "unread")  # its filter was replaced
    assert without.probe(code, "unread") is Answer.MAYBE
    assert without.probe(code, "nobody") is Answer.ABSENT
    with asking.begin() as connection:  # of the release with the outbox, which goes on running
        connection.execute(sa.text(insert(2, "later")))
    assert without.probe(code, "later") is not Answer.ABSENT
    with asking.begin() as connection:
        connection.execute(sa.insert(Parcel).values(id=3, code="last"))
    assert without.probe(code, "last") is not Answer.ABSENT
    without.unlisten()
    other.dispose()


def test_a_release_without_the_outbox_stops_when_there_is_one(store, world, asking) -> None:
    other = sa.create_engine(world.url)
    without, code = as_captured(store, other)
    without.build(other)
    assert without.probe(code, "nobody") is Answer.ABSENT
    plugin = listening(store, asking)
    plugin.build(asking)
    with asking.begin() as connection:
        connection.execute(sa.text(insert(1, "text")))
    assert without.probe(code, "text") is not Answer.ABSENT
    plugin.unlisten()
    without.unlisten()
    other.dispose()


@only_postgresql
def test_rows_of_copy_freeze_are_not_absent_to_an_older_snapshot(world, asking, plugin) -> None:
    """They are visible to every snapshot, the outbox's rows are not."""
    fresh = "SELECT id FROM parcels WHERE id = 777"
    with asking.connect() as connection:
        connection = connection.execution_options(isolation_level="REPEATABLE READ")
        assert plugin.probe(Parcel.id, 776, connection=connection) is Answer.ABSENT
        with world.connect() as other:
            driver = other.connection.driver_connection
            driver.execute("TRUNCATE parcels")
            with driver.cursor().copy("COPY parcels (id) FROM STDIN WITH (FREEZE)") as copy:
                copy.write("777\n")
            driver.commit()
        assert connection.exec_driver_sql(fresh).all() == [(777,)]
        connection.execute(sa.update(Parcel).values(note="x").where(Parcel.id == 1))  # asks anew
        answer = plugin.probe(Parcel.id, 777, connection=connection)
        assert answer.reason == feed_module.REWRITTEN
        connection.rollback()
    assert asked(asking, plugin, Parcel.id, 777) is Answer.MAYBE
    assert asked(asking, plugin, Parcel.id, 778) is Answer.ABSENT


@only_sqlite
@pytest.mark.parametrize("how", ["copied", "vacuumed"])
def test_the_copy_of_an_sqlite_file_is_another_database(
    world, plugin, store, tmp_path, how
) -> None:
    """Its writers fill its own outbox, and the follower is on the original."""
    Follower(world, store).run_once()
    copy = tmp_path / "copy.db"
    if how == "copied":
        shutil.copy(world.url.database, copy)
    else:
        write(world.execution_options(isolation_level="AUTOCOMMIT"), f"VACUUM INTO '{copy}'")
    plugin.unlisten()
    engine = sa.create_engine(f"sqlite:///{copy}")
    other = listening(store, engine)
    write(engine, insert(7, "x7"))
    Follower(world, store).run_once()
    assert "another database" in other.probe(Parcel.code, "x7").reason
    other.build(engine)
    Follower(engine, store).run_once()
    assert other.probe(Parcel.code, "x7") is Answer.MAYBE
    assert other.probe(Parcel.code, "zz") is Answer.ABSENT
    other.unlisten()
    engine.dispose()
