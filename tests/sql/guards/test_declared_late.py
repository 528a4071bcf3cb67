"""Guards that are declared, or no longer listened to, between a statement and its commit."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any, cast

import pytest
import sqlalchemy as sa

from bloomstore.sql import Answer, BloomPlugin, Guard
from tests.sql.support.foreign_writes import WRITES, interrupted, reflected
from tests.sql.support.models import Base, User


@pytest.mark.parametrize("form", WRITES)
def test_a_guard_that_is_built_before_a_statement_under_autocommit(store, engine, form) -> None:
    """The statement ends without a commit that could look again."""
    other = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT")
    old = BloomPlugin(store)
    old.listen(other)
    table = reflected(engine)
    new = BloomPlugin(store)

    def declare() -> None:
        new.listen(engine)
        new.declare(Base.metadata)
        new.build(engine)

    known: list[Answer] = []
    looks = old._capture.autocommit_lock.hold

    def late(context: Any) -> Any:
        declare()
        return looks(context)

    cast("Any", old._capture.autocommit_lock).hold = late
    with other.connect() as connection:
        WRITES[form](connection, table)
        known += [new.probe(User.id, 7), new.probe(User.email, "x@y")]
    known += [new.probe(User.id, 7), new.probe(User.email, "x@y")]
    assert Answer.ABSENT not in known
    old.unlisten()
    new.unlisten()
    other.dispose()


def test_a_build_waits_for_statements_that_concerned_nobody(store, engine) -> None:
    """Under AUTOCOMMIT: it was looked at, and is not sent yet."""
    other = sa.create_engine(engine.url, isolation_level="AUTOCOMMIT")
    other.connect().close()  # the dialect's own questions are not what is interrupted
    old = BloomPlugin(store)
    old.listen(other)
    table = reflected(engine)
    new = BloomPlugin(store)
    waited: list[str] = []

    def declare() -> None:
        new.listen(engine)
        new.declare(Base.metadata)
        try:
            new.build(engine, patience=0.2)
        except Exception as error:  # noqa: BLE001  said below
            waited.append(str(error))

    interrupted(old, declare)
    with other.connect() as connection:
        connection.execute(sa.insert(table).values(id=7, email="x@y"))
    assert "AUTOCOMMIT" in waited[0]
    new.build(engine)
    assert new.probe(User.id, 7) is Answer.MAYBE
    old.unlisten()
    new.unlisten()
    other.dispose()


@pytest.mark.parametrize("form", WRITES)
def test_a_guard_that_the_same_plugin_is_told_of_meanwhile(store, engine, form) -> None:
    plugin = BloomPlugin(store)
    plugin.listen(engine)
    table = reflected(engine)

    def declare() -> None:
        def act() -> None:
            plugin.declare(Base.metadata)
            plugin.build(engine)

        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    interrupted(plugin, declare)
    with engine.begin() as connection:
        WRITES[form](connection, table)
    assert plugin.guards
    assert plugin.probe(User.id, 7) is not Answer.ABSENT
    assert plugin.probe(User.email, "x@y") is not Answer.ABSENT
    plugin.unlisten()
    # The build disposed of the pool: the connection in use went back to the old one.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        engine.dispose()
        gc.collect()


def test_a_program_that_declares_one_of_two_guards(store, engine) -> None:
    """Its statement concerns a guard that it knows, and one that is built before it is sent."""
    less = sa.Table(
        "users",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, info={"bloomstore": Guard()}),
        sa.Column("email", sa.String(60)),
    )
    other = sa.create_engine(engine.url)
    old = BloomPlugin(store, less.metadata)
    old.listen(other)
    old.build(other)
    new = BloomPlugin(store)

    def declare() -> None:
        new.listen(engine)
        new.declare(Base.metadata)
        new.build(engine)

    interrupted(old, declare)
    with other.begin() as connection:
        connection.execute(sa.insert(less).values(id=7, email="x@y"))
    assert new.probe(User.id, 7) is Answer.MAYBE
    assert new.probe(User.email, "x@y") is not Answer.ABSENT
    old.unlisten()
    new.unlisten()
    other.dispose()


def test_a_plan_that_is_made_while_a_guard_is_declared_is_not_kept(store, engine) -> None:
    """Another thread declares it after the guards were asked, before the plan is kept."""
    plugin = BloomPlugin(store)
    plugin.listen(engine)
    table = reflected(engine)
    makes = plugin._capture.plans.make

    def made(*given: Any, **named: Any) -> Any:
        plan = makes(*given, **named)
        if not plugin.guards:
            thread = threading.Thread(target=plugin.declare, args=(Base.metadata,))
            thread.start()
            thread.join()
        return plan

    plugin._capture.plans.make = made  # type: ignore[method-assign]
    insert = sa.insert(table)
    with engine.begin() as connection:
        connection.execute(insert, {"id": 1, "email": "1@y"})
    plugin.build(engine)
    with engine.begin() as connection:
        connection.execute(insert, {"id": 2, "email": "2@y"})
    assert plugin.probe(User.id, 2) is not Answer.ABSENT
    plugin.unlisten()


@pytest.mark.parametrize("form", ["core", "text"])
def test_a_transaction_that_is_open_when_its_plugin_stops_listening(
    store, plugin, engine, form
) -> None:
    other = sa.create_engine(engine.url)
    goes = BloomPlugin(store, Base.metadata)
    goes.listen(other)
    with other.begin() as connection:
        if form == "core":
            connection.execute(sa.insert(User).values(email="x@y"))
        else:
            connection.execute(sa.text("INSERT INTO users (email) VALUES ('x@y')"))
        goes.unlisten()
    assert plugin.probe(User.email, "x@y") is not Answer.ABSENT
    other.dispose()
