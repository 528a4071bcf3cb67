"""The policy `shadow`: every query is sent, and a row that a guard denies raises the alarm."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from bloomstore.sql import Answer, BloomPlugin
from tests.sql.support.models import Base, User


@pytest.fixture
def shadow(store, engine, sessions):
    """A plugin that only watches."""
    plugin = BloomPlugin(store, Base.metadata, policy="shadow")
    plugin.listen(engine, sessions)
    plugin.build(engine)
    yield plugin
    plugin.unlisten()


def write_unseen(plugin, engine, sessions, **row: Any) -> None:
    """What must never happen: a writer that nobody listens to."""
    plugin.unlisten()
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(**row))
    plugin.listen(engine, sessions)


def test_shadow_sends_all_and_raises_the_alarm(shadow, engine, sessions, sent, caplog) -> None:
    with sessions() as session:
        sent()
        assert session.get(User, 5) is None
        assert session.scalars(select(User).where(User.email == "zz@x")).all() == []
        assert sent() == 2
    stats = shadow.stats()
    assert (stats["users.id"]["absent"], stats["users.email"]["absent"]) == (1, 1)
    write_unseen(shadow, engine, sessions, id=5, email="zz@x")
    assert shadow.probe(User.email, "zz@x") is Answer.ABSENT  # wrong, as it must be
    with sessions() as session:
        assert session.scalars(select(User).where(User.email == "zz@x")).one().id == 5
    assert "FALSE NEGATIVE" in caplog.text
    assert shadow.stats()["users.email"]["disagreements"] == 1
    assert shadow.probe(User.email, "anything") == Answer.UNKNOWN
    assert shadow.stats()["users.id"]["disagreements"] == 0
    with sessions() as session:
        assert session.get(User, 5).email == "zz@x"
    assert shadow.stats()["users.id"]["disagreements"] == 1


def test_shadow_looks_for_the_absent_keys_of_a_list(shadow, engine, sessions, sent, caplog) -> None:
    with sessions.begin() as session:
        session.add(User(id=1, email="1@x"))
    wanted = select(User.id).where(User.email.in_(["1@x", "5@x", "6@x"]))
    later = select(User).where(User.email.in_(sa.bindparam("emails", expanding=True)))
    later = later.options(joinedload(User.team))
    write_unseen(shadow, engine, sessions, id=7, email="7@x")
    with sessions() as session:
        sent()
        assert session.scalars(wanted).all() == [1]
        assert sent() == 2  # all of them, and the absent ones
        assert session.scalars(wanted.where(User.email != "1@x")).all() == []
        found = session.scalars(later, {"emails": ["1@x"]}).all()
        assert [user.id for user in found] == [1]
    assert "FALSE NEGATIVE" not in caplog.text
    with sessions() as session:
        found = session.scalars(later, {"emails": ["1@x", "6@x", "7@x"]}).all()
        assert {user.id for user in found} == {1, 7}
    assert "FALSE NEGATIVE for ['6@x', '7@x']" in caplog.text
    assert shadow.stats()["users.email"]["disagreements"] == 1
    assert shadow.probe(User.email, "anything") == Answer.UNKNOWN


def test_shadow_raises_the_alarm_inside_a_batch_too(
    shadow, store, engine, sessions, caplog
) -> None:
    write_unseen(shadow, engine, sessions, id=5, email="5@x")
    with store.batch(), sessions() as session:
        assert session.get(User, 5).email == "5@x"
    assert "FALSE NEGATIVE for 5" in caplog.text
    assert shadow.probe(User.id, 6) == Answer.UNKNOWN


def test_shadow_knows_a_row_that_came_in_between(shadow, engine, sessions, caplog) -> None:
    values = ["5@x", "6@x"]
    commits = iter([True])

    @sa.event.listens_for(engine, "before_cursor_execute")
    def between(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("SELECT users.id") and next(commits, False):
            with sessions.begin() as other:
                other.add(User(id=5, email="5@x"))

    with sessions() as session:
        found = session.scalars(select(User.id).where(User.email.in_(values))).all()
    assert found == [5]
    assert next(commits, None) is None
    assert "FALSE NEGATIVE" not in caplog.text
    assert shadow.stats()["users.email"]["disagreements"] == 0
