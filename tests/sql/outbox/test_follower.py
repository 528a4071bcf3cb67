"""The follower: keys leave an outbox only when they are in the filter, and only once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.rebuild.verify import verify
from bloomstore.sql import Answer, BloomPlugin, Guard
from bloomstore.sql.build.guard_source import GuardSource
from bloomstore.sql.outbox import catch_up as feed_module
from bloomstore.sql.outbox import follower
from bloomstore.sql.outbox.follower import Follower
from bloomstore.sql.outbox.position import Position, clock
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import Outbox, outbox_name
from tests.sql.support import outbox_models as fed
from tests.sql.support.kinds import not_postgresql, only_postgresql
from tests.sql.support.outbox_models import Parcel, asked, insert, listening, write


def waiting(engine: sa.Engine, column: str = "code") -> int:
    """Keys in the outbox."""
    with engine.connect() as connection:
        table = outbox_name(f"parcels.{column}")
        return connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one()


def test_a_pass_brings_keys_and_makes_a_stale_answer_possible(world, store, plugin, kind) -> None:
    write(world, insert(1, "a"), "UPDATE parcels SET code = 'b'")
    assert plugin.probe(Parcel.code, "zz") == Answer.UNKNOWN
    passes = Follower(world, store, keep=0).run_once()
    assert {(done.name, done.keys, done.doubt) for done in passes} == {
        ("parcels.id", 1, ""),
        ("parcels.code", 2, ""),
    }
    assert plugin.probe(Parcel.code, "a") is Answer.MAYBE
    assert plugin.probe(Parcel.code, "b") is Answer.MAYBE
    assert plugin.probe(Parcel.code, "zz") is Answer.ABSENT
    assert plugin.probe(Parcel.id, 5).reason == feed_module.NO_ANSWER  # it allows no staleness
    assert waiting(world) == 0 or kind == "postgresql"


def test_a_connection_that_reads_other_values_brings_no_keys(world, store, plugin, kind) -> None:
    if kind != "sqlite":
        pytest.skip("text_factory is SQLite's")
    reading = sa.create_engine(world.url)
    sa.event.listen(
        reading,
        "connect",
        lambda raw, _: setattr(raw, "text_factory", lambda b: b.decode().lower()),
    )
    write(world, insert(1, "ABC"))
    passes = Follower(reading, store, keep=0).run_once()
    assert "text_factory" in {done.name: done.doubt for done in passes}["parcels.code"]
    assert plugin.probe(Parcel.code, "ABC") is not Answer.ABSENT
    assert waiting(world) == 1
    reading.dispose()


def test_verify_does_not_miss_what_is_still_in_the_outbox(world, store, plugin) -> None:
    write(world, insert(1, "a"), insert(2, "b"))
    source = GuardSource(store, world, plugin.guards["parcels.code"].declared)
    assert waiting(world) == 2
    found = verify(store, "parcels.code", source, probes=10)
    assert (found.rows, found.missing) == (2, 0)
    feed = plugin.guards["parcels.code"].feed
    lost = f"DELETE FROM {feed.outbox(world.dialect)} WHERE {feed.keys[0]} = 'b'"
    write(world, lost)
    found = verify(store, "parcels.code", source, probes=10)
    assert (found.missing, found.first_missing) == (1, ["b"])


def test_an_old_pass_is_worth_nothing(world, store, plugin, monkeypatch) -> None:
    Follower(world, store).run_once()
    assert plugin.probe(Parcel.code, "zz") is Answer.ABSENT
    now = clock()
    monkeypatch.setattr(feed_module, "clock", lambda: now + 31)
    assert "s old" in plugin.probe(Parcel.code, "zz").reason
    monkeypatch.setattr(feed_module, "clock", lambda: now)
    assert plugin.probe(Parcel.code, "zz") is Answer.ABSENT
    monkeypatch.setattr(feed_module, "clock", lambda: now + 31)
    store._core.boot = "another"
    assert "on this host since it was started" in plugin.probe(Parcel.code, "zz").reason


@not_postgresql
def test_a_row_that_was_committed_late_is_not_lost(world, store, plugin, kind, monkeypatch) -> None:
    """Its id is lower than those that were applied before it could be seen."""
    if kind == "sqlite":
        pytest.skip("SQLite has one writer at a time: ids are in the order of commits")
    slow = world.raw_connection()
    slow.cursor().execute(insert(1, "slow"))
    write(world, insert(2, "fast"))
    assert {done.keys for done in Follower(world, store).run_once()} == {1}
    slow.commit()
    slow.close()
    assert {done.keys for done in Follower(world, store).run_once()} == {1}
    assert plugin.probe(Parcel.code, "slow") is Answer.MAYBE


@not_postgresql
def test_rows_that_come_while_a_pass_runs_stay(world, store, plugin, monkeypatch) -> None:
    monkeypatch.setattr(follower, "CHUNK", 2)
    write(world, *(insert(number, f"c{number}") for number in range(5)))
    honest = feed_module.Feed.apply
    late = iter(range(100, 103))

    def apply(self, raw) -> str:
        why = honest(self, raw)
        for number in (next(late, None),):
            if number is not None:
                write(world, insert(number, f"late{number}"))
        return why

    monkeypatch.setattr(feed_module.Feed, "apply", apply)
    Follower(world, store).run_once()
    monkeypatch.setattr(feed_module.Feed, "apply", honest)
    Follower(world, store).run_once()
    for number in range(100, 103):
        assert plugin.probe(Parcel.code, f"late{number}") is Answer.MAYBE
    assert waiting(world) == waiting(world, "id") == 0


@not_postgresql
def test_a_key_that_could_not_be_added_stays_in_the_outbox(
    world, store, plugin, monkeypatch
) -> None:
    write(world, insert(1, "a"))
    monkeypatch.setattr(feed_module.Feed, "apply", lambda self, raw: "no space left on device")
    (first, second) = Follower(world, store).run_once()
    assert first.doubt == second.doubt == "no space left on device"
    assert waiting(world) == 1
    assert "no follower" in plugin.probe(Parcel.code, "zz").reason


@not_postgresql
def test_one_store_has_each_outbox(world, store, plugin, tmp_path, asking) -> None:
    write(world, insert(1, "a"))
    Follower(world, store).run_once()
    with bloomstore.open(tmp_path / "other") as second:
        other = listening(second, asking)
        other.build(asking)
        assert "another store" in Follower(world, second).run_once()[0].doubt
        Follower(world, second, takes_over=True).run_once()
        assert "invalidated" in Follower(world, store).run_once()[0].doubt
        assert "invalidated" in Follower(world, second).run_once()[0].doubt
        asking.dispose()
        other.build(asking, force=True)
        assert Follower(world, second).run_once()[0].doubt == ""
        assert other.probe(Parcel.code, "a") is Answer.MAYBE
        assert other.probe(Parcel.code, "zz") is Answer.ABSENT
        other.unlisten()


@pytest.fixture
def stalled(world, store, monkeypatch) -> Iterator[Callable[[], list[follower.Pass]]]:
    """A follower that has read and applied keys of parcels.code and has not deleted them yet.

    Called, it goes on to its end and says what it did.
    """
    write(world, insert(1, "a1"), insert(2, "a2"), insert(3, "a3"))
    at, go, honest = threading.Event(), threading.Event(), feed_module.Feed.apply

    def apply(self, raw) -> str:
        why = honest(self, raw)
        if threading.current_thread().name == "stalled" and self._guard.name == "parcels.code":
            at.set()
            assert go.wait(60)
        return why

    monkeypatch.setattr(feed_module.Feed, "apply", apply)
    done: list[follower.Pass] = []
    own = sa.create_engine(world.url)
    run = threading.Thread(target=lambda: done.extend(Follower(own, store).run_once()))
    run.name = "stalled"
    run.start()
    assert at.wait(60)

    def go_on() -> list[follower.Pass]:
        go.set()
        run.join(60)
        assert not run.is_alive()
        return done

    yield go_on
    go_on()
    own.dispose()


@not_postgresql
def test_a_stalled_follower_deletes_nothing_of_an_outbox_made_anew(
    world, asking, store, plugin, stalled
) -> None:
    fed.unmake(world)
    fed.make_outboxes(world)
    asking.dispose()
    plugin.build(asking, force=True)
    write(world, insert(11, "a11"), insert(12, "a12"), insert(13, "a13"))
    assert {done.doubt for done in stalled() if done.name == "parcels.code"} == {follower.MOVED}
    assert waiting(world) == 3
    Follower(world, store).run_once()
    assert plugin.probe(Parcel.code, "a12") is Answer.MAYBE


@not_postgresql
def test_ids_of_an_outbox_made_anew_begin_above_the_old_ones(world) -> None:
    last = f"SELECT max(id) FROM {outbox_name('parcels.code')}"
    write(world, insert(1, "a"))
    with world.connect() as connection:
        old = connection.execute(sa.text(last)).scalar_one()
    fed.unmake(world)
    fed.make_outboxes(world)
    write(world, insert(2, "b"))
    with world.connect() as connection:
        assert connection.execute(sa.text(last)).scalar_one() > old + 1


@not_postgresql
def test_a_stalled_follower_deletes_nothing_that_another_store_has_taken_over(
    world, asking, store, plugin, stalled, tmp_path
) -> None:
    """The new store takes over first, and is built after it: that is the one order."""
    with bloomstore.open(tmp_path / "other") as second:
        passes = Follower(world, second, takes_over=True).run_once()
        assert {done.doubt for done in passes} == {f"it is not built in {second.path}"}
        assert "another store" not in str(passes)
        own = sa.create_engine(world.url)
        other = listening(second, own)
        other.build(own)
        write(world, insert(4, "a4"))
        assert {done.doubt for done in stalled() if done.name == "parcels.code"} == {follower.MOVED}
        assert {done.doubt for done in Follower(world, second).run_once()} == {""}
        assert other.probe(Parcel.code, "a4") is Answer.MAYBE
        assert other.probe(Parcel.code, "zz") is Answer.ABSENT
        assert "invalidated" in Follower(world, store).run_once()[0].doubt
        other.unlisten()
        own.dispose()


@only_postgresql
def test_a_purge_leaves_what_a_rebuild_has_still_to_read(
    world, asking, store, plugin, monkeypatch
) -> None:
    honest = GuardSource.settle

    def settle(self, patience) -> None:
        write(world, insert(7, "during"))
        Follower(world, store, keep=0).run_once()
        write(world, insert(8, "later"))
        Follower(world, store, keep=0).run_once()
        honest(self, patience)

    monkeypatch.setattr(GuardSource, "settle", settle)
    plugin.rebuild(asking, Parcel.code)
    assert asked(asking, plugin, Parcel.code, "during") is Answer.MAYBE
    assert asked(asking, plugin, Parcel.code, "zz") is Answer.ABSENT
    Follower(world, store, keep=0).run_once()
    assert waiting(world) == 0


@only_postgresql
def test_a_purge_leaves_what_a_rebuild_reads_that_has_just_begun(
    world, asking, store, plugin, monkeypatch
) -> None:
    honest = GuardSource.count

    def count(self) -> int:
        write(world, insert(7, "during"))
        Follower(world, store, keep=0).run_once()
        return honest(self)

    monkeypatch.setattr(GuardSource, "count", count)
    plugin.rebuild(asking, Parcel.code)
    assert asked(asking, plugin, Parcel.code, "during") is Answer.MAYBE
    assert asked(asking, plugin, Parcel.code, "zz") is Answer.ABSENT


@only_postgresql
def test_a_purge_leaves_what_is_read_anew_when_a_rebuild_ends_meanwhile(
    world, asking, store, plugin, monkeypatch
) -> None:
    has_read, may_purge = threading.Event(), threading.Event()
    settle, passed = GuardSource.settle, Position.passed
    follower = threading.Thread(target=Follower(world, store, keep=0).run_once)

    def stalls(self, began) -> None:
        passed(self, began)
        if self._name == "parcels.code":
            has_read.set()
            may_purge.wait(30)

    def settles(self, patience) -> None:
        write(world, insert(7, "during"))
        follower.start()
        assert has_read.wait(30)
        settle(self, patience)

    monkeypatch.setattr(GuardSource, "settle", settles)
    monkeypatch.setattr(Position, "passed", stalls)
    plugin.rebuild(asking, Parcel.code)
    may_purge.set()
    follower.join()
    assert asked(asking, plugin, Parcel.code, "during") is Answer.MAYBE
    assert asked(asking, plugin, Parcel.code, "zz") is Answer.ABSENT


@only_postgresql
def test_a_purge_leaves_what_others_have_not_read(world, asking, store, plugin, tmp_path) -> None:
    with bloomstore.open(tmp_path / "other") as second:
        other = listening(second, asking)
        other.build(asking)
        write(world, insert(1, "a"))
        Follower(world, store).run_once()
        assert waiting(world, "id") == 1
        assert asked(asking, other, Parcel.id, 1) is Answer.MAYBE
        write(world, insert(2, "b"))
        assert {done.purged for done in Follower(world, store, keep=0).run_once()} == {2}
        assert waiting(world, "id") == 0
        assert asked(asking, plugin, Parcel.id, 2) is Answer.MAYBE
        assert asked(asking, plugin, Parcel.id, 3) is Answer.ABSENT
        assert asked(asking, other, Parcel.id, 2).reason == feed_module.PURGED.text
        other.unlisten()


@only_postgresql
def test_a_follower_helps_a_guard_that_was_too_far_behind(
    world, asking, store, plugin, monkeypatch
) -> None:
    monkeypatch.setattr(feed_module, "LONGEST", 3)
    write(world, *(insert(number, f"c{number}") for number in range(10)))
    assert asked(asking, plugin, Parcel.id, 99).reason == feed_module.BEHIND.text
    Follower(world, store).run_once()
    assert asked(asking, plugin, Parcel.id, 99) is Answer.ABSENT
    assert asked(asking, plugin, Parcel.id, 9) is Answer.MAYBE


def test_a_guard_that_is_not_built_keeps_its_keys(world, store) -> None:
    write(world, insert(1, "a"))
    assert {done.doubt for done in Follower(world, store).run_once()} == {
        f"it is not built in {store.path}"
    }
    assert waiting(world) == 1


def test_keys_of_several_columns_and_uuids_are_followed(engine, store, kind) -> None:
    migrate.upgrade(engine.url.render_as_string(hide_password=False))
    metadata = sa.MetaData()
    guards = [Guard("a", "b", feed="outbox", staleness=30), Guard("u", feed="outbox", staleness=30)]
    table = sa.Table(
        "several",
        metadata,
        sa.Column("a", sa.Integer),
        sa.Column("b", sa.LargeBinary(9) if kind == "sqlite" else sa.Numeric(9, 2)),
        sa.Column("u", sa.Uuid),
        info={"bloomstore": guards},
    )
    metadata.create_all(engine)
    outboxes = [
        Outbox("several(a, b)", "several", ["a", "b"], None, engine.dialect),
        Outbox("several.u", "several", ["u"], None, engine.dialect),
    ]
    write(engine, *(statement for outbox in outboxes for statement in outbox.create()))
    plugin = BloomPlugin(store, metadata)
    asking = sa.create_engine(engine.url)
    plugin.listen(asking)
    plugin.build(asking)
    own = uuid.uuid4()
    with engine.begin() as connection:
        b = b"x" if kind == "sqlite" else 5.25
        connection.execute(sa.insert(table).values(a=1, b=b, u=own))
    assert [done.doubt for done in Follower(engine, store).run_once()] == ["", ""]
    assert plugin.probe(table.c.u, own) is Answer.MAYBE
    assert plugin.probe(table.c.u, uuid.uuid4()) is Answer.ABSENT
    assert plugin.probe((table.c.a, table.c.b), (1, b)) is Answer.MAYBE
    assert plugin.probe((table.c.a, table.c.b), (2, b)) is Answer.ABSENT
    plugin.unlisten()
    asking.dispose()
    write(engine, *(statement for outbox in outboxes for statement in outbox.drop()))


@not_postgresql
def test_writers_and_a_follower_lose_nothing(world, store, plugin, kind) -> None:
    """Threads with connections of their own, one of which is always slow to commit."""
    if kind == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    stop = threading.Event()
    failed: list[BaseException] = []

    def writes(number: int) -> None:
        try:
            for turn in range(60):
                raw = world.raw_connection()
                raw.cursor().execute(insert(number * 1000 + turn, f"{number}-{turn}"))
                stop.wait(0.003 * (turn % 3))
                raw.commit()
                raw.close()
        except BaseException as error:  # noqa: BLE001  told to the test
            failed.append(error)

    threads = [threading.Thread(target=writes, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        Follower(world, store).run_once()
    Follower(world, store).run_once()
    assert failed == []
    assert waiting(world) == 0
    missed = [
        f"{number}-{turn}"
        for number in (1, 2, 3)
        for turn in range(60)
        if plugin.probe(Parcel.code, f"{number}-{turn}") is not Answer.MAYBE
    ]
    assert missed == []
