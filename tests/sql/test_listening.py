"""Plugins come and go: in any order, several on one engine, while others are at work."""

from __future__ import annotations

import threading
import traceback
from itertools import count
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from bloomstore.sql import Answer, BloomPlugin, GuardedSession
from tests.sql.support.kinds import only_servers, only_sqlite
from tests.sql.support.models import Base, Team, User


def wrapped(engine: sa.Engine) -> list[str]:
    return sorted(name for name in vars(engine.dialect) if name.startswith("do_"))


def depth_of_a_statement(engine: sa.Engine) -> int:
    """How many calls lie above the driver."""
    depths = []
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        raw.set_trace_callback(lambda sql: depths.append(len(traceback.extract_stack())))
        connection.execute(select(User.id)).all()
        raw.set_trace_callback(None)
    return depths[0]


@only_sqlite
def test_plugins_that_follow_each_other_leave_nothing_behind(store, engine) -> None:
    old = BloomPlugin(store, Base.metadata)
    old.listen(engine)
    depth = depth_of_a_statement(engine)
    for _ in range(5):
        new = BloomPlugin(store, Base.metadata)
        new.listen(engine)
        old.unlisten()
        old = new
        assert depth_of_a_statement(engine) == depth
    old.unlisten()
    assert wrapped(engine) == []


@only_sqlite
def test_what_somebody_else_has_wrapped_stays(store, engine) -> None:
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    below = engine.dialect.do_execute
    engine.dialect.do_execute = lambda *given, **named: below(*given, **named)
    theirs = engine.dialect.do_execute
    plugin.unlisten()
    assert engine.dialect.do_execute is theirs
    plugin.listen(engine)
    plugin.build(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(Team).values(id=5))
    assert plugin.probe(Team.id, 5) is Answer.MAYBE
    plugin.unlisten()
    assert engine.dialect.do_execute is theirs
    del engine.dialect.do_execute


@only_servers
def test_who_stops_to_listen_loses_no_key_of_other_threads(store, engine, kind) -> None:
    """What was flushed before has its key, or the guard a fence; and nobody sees an error."""
    plugin = BloomPlugin(store, Base.metadata)
    sessions = sessionmaker(engine, class_=GuardedSession)
    numbers, errors = count(1), []
    flushed: set[int] = set()
    committed: set[int] = set()
    is_over = threading.Event()

    def write() -> None:
        try:
            while not is_over.is_set():
                with sessions() as session:
                    made = [next(numbers) for _ in range(3)]
                    for number in made:
                        session.add(Team(id=number))
                        session.flush()
                        flushed.add(number)
                        session.get(Team, -number)
                    session.commit()
                    committed.update(made)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    plugin.listen(engine, sessions)
    plugin.build(engine)
    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        is_over.wait(0.05)
        before = set(flushed)
        plugin.unlisten()
        lacking = [number for number in before if number not in store["teams.id"]]
        plugin.listen(engine, sessions)
        if lacking:
            break
    is_over.set()
    for thread in threads:
        thread.join()
    plugin.unlisten()
    assert errors == []
    assert not lacking or not store["teams.id"].state.is_sound
    assert len(committed) > 0


@pytest.mark.parametrize("order", ["the first first", "the last first"])
@only_sqlite
def test_two_plugins_cease_in_any_order(tmp_path, store, engine, order) -> None:
    sessions = sessionmaker(engine, class_=GuardedSession)
    both = async_sessionmaker(create_async_engine("sqlite+aiosqlite:///" + str(tmp_path / "a.db")))

    def traces() -> object:
        listened = ("connect", "reset", "checkout")
        return (
            wrapped(engine),
            [len(getattr(engine.pool.dispatch, name)) for name in listened],
            len(
                cast("Any", sessions.class_.dispatch).after_begin._clslevel.get(sessions.class_, ())
            ),
            dict(sessions.kw),
            dict(both.kw),
        )

    one, two = BloomPlugin(store, Base.metadata), BloomPlugin(store, Base.metadata)
    before = traces()
    for plugin in (one, two):
        plugin.listen(engine, sessions, both)
        plugin.listen(engine, sessions, both)  # again
        plugin.build(engine)
    leaves, stays = (one, two) if order == "the first first" else (two, one)
    leaves.unlisten()
    with sessions() as session:
        assert session.info["bloomstore"] is stays._asker
        session.add(Team(id=5))
        session.commit()
        assert session.get(Team, 6) is None
    assert stays.probe(Team.id, 5) is Answer.MAYBE
    assert stays.guards["teams.id"].metrics.skipped_gets == 1
    stays.unlisten()
    assert traces() == before


@only_sqlite
def test_engines_with_options_are_one_engine(store, engine) -> None:
    relative = engine.execution_options(logging_token="relative")
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, relative)
    plugin.build(relative)
    with relative.begin() as connection:
        connection.execute(sa.insert(Team).values(id=5))
    assert plugin.probe(Team.id, 5) is Answer.MAYBE
    assert plugin.stats()["teams.id"]["keys"] == 1
    plugin.unlisten()
    assert wrapped(engine) == []


@pytest.mark.parametrize("policy", ["explicit", "auto", "shadow"])
def test_listening_opens_no_connection(store, engine, policy) -> None:
    earlier = BloomPlugin(store, Base.metadata)
    earlier.listen(engine)
    earlier.build(engine)
    earlier.unlisten()
    fresh = sa.create_engine(engine.url)
    opened: list[object] = []
    sa.event.listen(fresh, "do_connect", lambda *given: opened.append(given))
    sessions = sessionmaker(fresh, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata, policy=policy)
    plugin.listen(fresh, sessions)
    assert opened == []
    with sessions() as session:
        assert session.get(Team, 5) is None
        session.add(Team(id=5))
        session.commit()
    assert plugin.probe(Team.id, 5) is Answer.MAYBE
    assert plugin.probe(Team.id, 6) is Answer.ABSENT
    plugin.unlisten()
    fresh.dispose()


def test_listeners_may_come_and_go_while_others_are_told(store, engine) -> None:
    """SQLAlchemy's own collections raise in whoever goes through them then."""
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata)
    heard = []

    @sa.event.listens_for(sessions, "after_begin")
    def begins(*given: object) -> None:
        plugin.unlisten()
        heard.append("after_begin")

    @sa.event.listens_for(engine, "connect")
    def connects(*given: object) -> None:
        plugin.unlisten()
        heard.append("connect")

    plugin.listen(engine, sessions)
    engine.dispose()
    with sessions() as session:
        session.execute(select(User.id)).all()
    assert heard == ["connect", "after_begin"]
