"""A permit saves the full check only while nothing that it was given for has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

import bloomstore
from bloomstore.sql import BloomPlugin, Guarded, GuardedSession
from bloomstore.sql.ask.eligibility import Eligibility
from tests.sql.support.models import Base, User

Sessions = sessionmaker[GuardedSession]
ABSENT = iter(range(10_000, 10**6))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One element for each full check."""
    calls: list[Any] = []
    inner = Eligibility.permit

    def permit(self: Eligibility, *given: Any, **named: Any) -> Any:
        calls.append(given)
        return inner(self, *given, **named)

    monkeypatch.setattr(Eligibility, "permit", permit)
    return calls


def get_absent(session: Session) -> None:
    assert session.get(User, next(ABSENT)) is None


def test_sessions_without_a_connection_share_a_permit(
    plugin: BloomPlugin, sessions: Sessions, checked: list[Any]
) -> None:
    for _ in range(5):
        with sessions() as session:
            get_absent(session)
            get_absent(session)
            assert not session.in_transaction()
    with sessions.begin() as session:
        get_absent(session)
    assert len(checked) == 1
    assert plugin.guards["users.id"].metrics.skipped_gets == 11


def test_a_transaction_has_its_own_permit(
    plugin: BloomPlugin, sessions: Sessions, checked: list[Any]
) -> None:
    with sessions() as session:
        session.connection()
        for _ in range(5):
            get_absent(session)
        assert len(checked) == 1
        session.rollback()
        session.connection()
        get_absent(session)
    assert len(checked) == 2


def another(engine: sa.Engine) -> sa.Engine:
    """The same database by an engine that the plugin does not listen to, and that keeps nothing."""
    return sa.create_engine(engine.url, poolclass=sa.NullPool)


def listens_to_statements(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(sessions, "do_orm_execute", lambda state: None)


def listens_to_one_session(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(session, "do_orm_execute", lambda state: None)


def listens_to_begins(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(sessions, "after_begin", lambda *given: None)


def listens_to_begins_of_one(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(session, "after_begin", lambda *given: None)


def listens_to_transactions(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(sessions, "after_transaction_create", lambda *given: None)


def listens_to_transactions_of_one(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(session, "after_transaction_create", lambda *given: None)


def listens_to_loans(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    sa.event.listen(engine, "checkout", lambda *given: None)


def listens_to_cursors(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def rewrites(
        conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> Any:
        return statement, parameters


def disposes(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    engine.dispose()


def translates(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    engine.update_execution_options(schema_translate_map={"x": "y"})


def binds_elsewhere(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    session.bind = another(engine)


def binds_a_class(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    session.bind_mapper(User, another(engine))


def replaces_get_bind(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    other = another(engine)
    session.get_bind = lambda *given, **named: other  # type: ignore[method-assign]


def adds_an_object(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    session.add(User(id=1, email="new@x"))


def must_begin(engine: sa.Engine, sessions: Sessions, session: Session) -> None:
    session.autobegin = False


CHANGES: list[Callable[[sa.Engine, Sessions, Session], None]] = [
    listens_to_statements,
    listens_to_one_session,
    listens_to_begins,
    listens_to_begins_of_one,
    listens_to_transactions,
    listens_to_transactions_of_one,
    listens_to_loans,
    listens_to_cursors,
    disposes,
    translates,
    binds_elsewhere,
    binds_a_class,
    replaces_get_bind,
    adds_an_object,
    must_begin,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_before_the_connection_is_noticed(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions, checked: list[Any], change: Any
) -> None:
    with sessions() as session:
        get_absent(session)
        get_absent(session)
        assert len(checked) == 1
        change(engine, sessions, session)
        if change is must_begin:
            with pytest.raises(sa.exc.InvalidRequestError, match="Autobegin is disabled"):
                session.get(User, next(ABSENT))
        else:
            get_absent(session)
        assert len(checked) == 2


def test_a_bypass_is_noticed(plugin: BloomPlugin, sessions: Sessions, checked: list[Any]) -> None:
    metrics = plugin.guards["users.id"].metrics
    with sessions() as session:
        get_absent(session)
        with plugin.bypass(session), plugin.bypass(session):
            get_absent(session)
        assert metrics.skipped_gets == 1
        get_absent(session)  # in the transaction that the bypass has begun
    assert metrics.skipped_gets == 2
    with sessions() as session:
        get_absent(session)
    assert metrics.skipped_gets == 3


def test_objects_of_the_session_are_found(plugin: BloomPlugin, sessions: Sessions) -> None:
    with sessions() as session:
        get_absent(session)
        user = User(id=7, email="seven@x")
        sa.orm.make_transient_to_detached(user)
        session.add(user)
        assert session.get(User, 7) is user


def test_a_plugin_that_ceases_to_listen_is_noticed(
    plugin: BloomPlugin, sessions: Sessions, checked: list[Any]
) -> None:
    session = sessions()
    get_absent(session)
    plugin.unlisten()
    get_absent(session)
    assert session.in_transaction()  # it was sent
    session.close()


def test_a_comparison_that_is_too_old_is_noticed(
    plugin: BloomPlugin, sessions: Sessions, checked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with sessions() as session:
        get_absent(session)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 1.0)
        get_absent(session)
        assert len(checked) == 1
        monkeypatch.setattr(time, "monotonic", lambda: now + 2.5)
        get_absent(session)
        assert len(checked) == 2


class Counting:
    """The guard's filter, counting lookups."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.lookups = inner, 0

    def __contains__(self, key: Any) -> bool:
        self.lookups += 1
        return key in self.inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_every_filter_is_asked_once(
    plugin: BloomPlugin, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = plugin.guards["users.id"]
    asked = Counting(guard.filter)
    monkeypatch.setattr(guard, "filter", asked)
    with sessions() as session:
        session.add(User(id=3, email="three@x"))
        session.commit()
    lookups = [
        lambda session: session.get(User, next(ABSENT)),
        lambda session: session.get(User, 3),
        lambda session: session.get_one(User, 3),
        lambda session: session.scalar(sa.select(User).where(User.id == 3).options(Guarded())),
        lambda session: session.scalar(
            sa.select(User).where(User.id == next(ABSENT)).options(Guarded())
        ),
        lambda session: plugin.probe(User.id, 3),
    ]
    for has_connection in (False, True):
        for lookup in lookups:
            with sessions() as session:
                if has_connection:
                    session.connection()
                asked.lookups = 0
                lookup(session)
                assert asked.lookups == 1


def test_every_filter_is_asked_once_under_auto(
    store: bloomstore.Store, engine: sa.Engine, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = BloomPlugin(store, Base.metadata, policy="auto")
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with sessions() as session:
        session.add(User(id=3, email="three@x"))
        session.commit()
    guard = plugin.guards["users.id"]
    asked = Counting(guard.filter)
    monkeypatch.setattr(guard, "filter", asked)
    with sessions() as session:
        session.execute(sa.text("SELECT 1"))
        for key, is_there in [(3, True), (next(ABSENT), False)]:
            session.expunge_all()
            asked.lookups = 0
            assert (session.get(User, key) is not None) is is_there
            assert asked.lookups == 1
        asked.lookups = 0
        assert session.scalar(sa.select(User).where(User.id == 3)) is not None
        assert asked.lookups == 1
    plugin.unlisten()


def test_options_that_change_before_a_permit_is_made_are_respected(
    engine: sa.Engine, plugin: BloomPlugin, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_permit = Eligibility.permit

    def permit_and_translate(self: Eligibility, *given: Any, **named: Any) -> Any:
        permit = real_permit(self, *given, **named)
        engine.update_execution_options(schema_translate_map={"nowhere": None})
        return permit

    with monkeypatch.context() as patch:
        patch.setattr(Eligibility, "permit", permit_and_translate)
        with sessions() as session:
            session.get(User, next(ABSENT))
    skipped = plugin.guards["users.id"].metrics.skipped_gets
    with sessions() as session:
        session.get(User, next(ABSENT))
    assert plugin.guards["users.id"].metrics.skipped_gets == skipped
