"""Keys that are added while the database works on their statement: nothing depends on it."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from bloomstore.errors import StoreFailed
from bloomstore.sql import Answer
from bloomstore.sql.capture import early
from bloomstore.sql.capture.pending import Pending

from .conftest import every_row_is_known
from .models import Ticket, User

servers_only = pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)


def begun(plugin: Any, session: Session) -> Pending:
    """What the session has written, once its early keys are there."""
    pending = plugin._capture.pending(session.connection())
    assert isinstance(pending, Pending)
    if pending.early is not None:
        pending.early.wait()
    return pending


def insert(session: Session, number: int) -> None:
    session.execute(sa.insert(User).values(id=number))


@servers_only
def test_a_lone_statement_has_its_keys_added_before_the_commit(plugin, engine, sessions) -> None:
    with sessions() as session:
        insert(session, 1)
        assert begun(plugin, session).early is not None
        assert plugin.probe(User.id, 1) is Answer.MAYBE
        session.commit()
        insert(session, 2)
        begun(plugin, session)
        session.rollback()
    assert plugin.probe(User.id, 2) is Answer.MAYBE  # a spare key
    assert every_row_is_known(plugin, engine) == 1


@servers_only
def test_what_the_last_transaction_did_decides(plugin, engine, sessions) -> None:
    with sessions() as session:
        for number in (1, 2):
            insert(session, number)
        session.commit()
        insert(session, 3)
        assert begun(plugin, session).early is None
        assert plugin.probe(User.id, 3) is Answer.ABSENT
        session.commit()
        insert(session, 4)
        assert begun(plugin, session).early is not None
        session.commit()
    assert every_row_is_known(plugin, engine) == 4


@servers_only
def test_the_keys_of_several_guards_are_early_those_of_the_server_are_not(
    plugin, engine, sessions
) -> None:
    with sessions() as session:
        session.execute(sa.insert(User), [{"id": n, "email": f"{n}@x"} for n in range(1, 1500)])
        assert begun(plugin, session).early is not None
        assert plugin.probe(User.id, 1400) is Answer.MAYBE
        assert plugin.probe(User.email, "1400@x") is Answer.MAYBE
        session.commit()
        session.add(Ticket())
        session.flush()
        assert begun(plugin, session).early is None
        session.commit()
    assert every_row_is_known(plugin, engine) == 2 * 1499 + 1


@servers_only
def test_keys_that_were_not_added_early_are_added_late(
    plugin, engine, sessions, monkeypatch
) -> None:
    def fails(*given: Any) -> None:
        raise StoreFailed("not now")

    monkeypatch.setattr(early, "_add", fails)
    with sessions() as session:
        insert(session, 1)
        session.commit()
    assert plugin.probe(User.id, 1) is Answer.MAYBE
    monkeypatch.setattr(early.ThreadPoolExecutor, "submit", _ends)
    with sessions() as session:
        insert(session, 2)
        assert begun(plugin, session).early is None
        session.commit()
    assert every_row_is_known(plugin, engine) == 2


def _ends(*given: Any) -> None:
    raise RuntimeError("cannot schedule new futures after interpreter shutdown")


@servers_only
def test_a_rebuild_that_begins_after_an_early_key_gets_it(plugin, store, engine, sessions) -> None:
    with sessions() as session:
        insert(session, 1)
        assert begun(plugin, session).early is not None
        with store.rebuild("users.id") as coming:
            session.commit()
            coming.switch()
    assert plugin.probe(User.id, 1) is Answer.MAYBE
    assert every_row_is_known(plugin, engine) == 1


@servers_only
def test_a_forked_child_has_a_thread_of_its_own(plugin, engine, sessions) -> None:
    with sessions() as session:
        insert(session, 1)
        session.commit()
    engine.dispose()
    child = os.fork()
    if not child:
        try:
            with sessions() as session:
                insert(session, 2)
                is_early = begun(plugin, session).early is not None
                session.commit()
            os._exit(0 if is_early else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert every_row_is_known(plugin, engine) == 2


@servers_only
def test_a_child_does_not_wait_for_what_its_parent_has_begun(
    plugin, engine, sessions, monkeypatch
) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(early, "_add", lambda *given: may_end.wait(60))
    with sessions() as session:
        insert(session, 1)
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                plugin.unlisten()
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        may_end.set()
        session.commit()
    assert every_row_is_known(plugin, engine) == 1


def test_the_thread_does_not_wait_for_itself(store) -> None:
    """The garbage collector may end a transaction in any thread."""

    def task() -> None:
        early._add(store, [])
        early.Begun(Future()).wait()

    thread = threading.Thread(target=task, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@servers_only
def test_the_thread_ends_when_nobody_listens(plugin, sessions) -> None:
    def threads() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith("bloomstore-early")]

    with sessions() as session:
        insert(session, 1)
        session.commit()
    assert len(threads()) == 1
    plugin.unlisten()
    assert threads() == []
