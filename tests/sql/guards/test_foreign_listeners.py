"""Listeners of the application: where they may change the question, it is sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.sql import visitors

from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession
from bloomstore.sql.guards import foreign_listeners
from tests.sql.support.kinds import only_sqlite
from tests.sql.support.models import Base, Team, User

pytestmark = only_sqlite


@pytest.fixture
def other(tmp_path) -> Iterator[sa.Engine]:
    """Another database, with the user 777."""
    other = sa.create_engine(sa.URL.create("sqlite", database=str(tmp_path / "other.db")))
    Base.metadata.create_all(other)
    with Session(other) as session:
        session.add(User(id=777, email="777@x"))
        session.commit()
    yield other
    other.dispose()


def test_a_listener_may_route_to_another_database(plugin, engine, sessions, other) -> None:
    @sa.event.listens_for(sessions, "do_orm_execute")
    def route(state: Any) -> Any:
        return state.invoke_statement(bind_arguments={"bind": other})

    query = select(User).where(User.id == 777).options(Guarded())
    with sessions() as session:
        assert session.get(User, 777) is not None
        assert len(session.scalars(query).all()) == 1


def lowered(state: Any) -> None:
    def lower(element: Any, **_: Any) -> Any:
        if isinstance(element, sa.BindParameter) and isinstance(element.value, str):
            return sa.bindparam(None, element.value.lower(), type_=element.type)
        return None

    state.statement = sa.sql.visitors.replacement_traverse(state.statement, {}, lower)


@pytest.mark.parametrize("kept", [GuardedSession, Session])
@pytest.mark.parametrize("comes", ["before", "behind"])
def test_a_listener_may_rewrite_the_statement(plugin, engine, sent, kept, comes) -> None:
    with Session(engine) as session:
        session.add(User(id=1, email="low@x"))
        session.commit()
    sessions = sessionmaker(engine, class_=kept)
    if comes == "before":
        sa.event.listen(sessions, "do_orm_execute", lowered)
    plugin.listen(sessions)
    if comes == "behind":
        sa.event.listen(sessions, "do_orm_execute", lowered)
    with sessions() as session:
        query = select(User).where(User.email == "LOW@X").options(Guarded())
        assert len(session.scalars(query).all()) == 1
        sent()
        absent = select(User).where(User.email == "NOBODY@X").options(Guarded())
        assert session.scalars(absent).all() == []
        # Our own listener is told what those before it have made of the statement.
        assert sent() == (0 if kept is Session and comes == "before" else 1)


@pytest.mark.parametrize("name", ["before_execute", "before_cursor_execute"])
@pytest.mark.parametrize("at", ["engine", "connection"])
def test_a_listener_may_replace_what_is_sent(plugin, engine, sessions, name, at) -> None:
    with Session(engine) as session:
        session.add(User(id=1, email="low@x"))
        session.commit()

    def of_connection(_: Any, element: Any, many: Any, given: Any, options: Any) -> Any:
        return element, many, {key: _lower(value) for key, value in given.items()}

    def of_cursor(_: Any, cursor: Any, sql: str, given: Any, *rest: Any) -> Any:
        return sql, tuple(map(_lower, given))

    listener = of_connection if name == "before_execute" else of_cursor
    with sessions() as session:
        target = engine if at == "engine" else session.connection()
        sa.event.listen(target, name, listener, retval=True)
        query = select(User).where(User.email == sa.bindparam("e")).options(Guarded())
        assert len(session.scalars(query, {"e": "LOW@X"}).all()) == 1


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def lowers_parameters(conn: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
    if isinstance(parameters, dict):
        for key in parameters:
            parameters[key] = _lower(parameters[key])


def lowers_binds(conn: Any, clauseelement: Any, *rest: Any) -> None:
    if isinstance(clauseelement, sa.Select):
        for each in visitors.iterate(clauseelement):
            if isinstance(each, sa.BindParameter):
                each.value = _lower(each.value)


def test_a_listener_that_returns_nothing_does_not_matter(plugin, engine, sessions, sent) -> None:
    """The fixture `sent` is one."""
    sa.event.listen(engine, "before_execute", lambda *given: None)
    with sessions() as session:
        assert session.get(User, 5) is None
        assert sent() == 0


def test_the_recipe_for_transactions_of_sqlite_is_answered(store, engine, sent) -> None:
    @sa.event.listens_for(engine, "connect")
    def connects(raw: Any, record: Any) -> None:
        raw.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begins(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    engine.dispose()
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    sent()
    with sessions() as session:
        assert session.get(User, 5) is None
    assert sent() == 0
    plugin.unlisten()


def test_a_listener_may_execute_by_itself(plugin, engine, sessions) -> None:
    told = []
    sa.event.listen(engine, "do_execute", lambda *given: told.append(given))
    with sessions() as session:
        assert session.get(User, 5) is None
    assert len(told) == 1


class A(sa.TypeDecorator[str]):
    impl = sa.String(20)
    cache_ok = False

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else f"a:{value}"


class B(sa.TypeDecorator[str]):
    impl = sa.String(20)
    cache_ok = False

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else f"b:{value}"


def test_types_without_a_cache_key_are_not_alike(store, engine) -> None:
    class One(DeclarativeBase):
        pass

    class Two(DeclarativeBase):
        pass

    class Guarding(One):
        __tablename__ = "keyed"
        k: Mapped[str] = mapped_column(
            A(), primary_key=True, info={"bloomstore": Guard(deterministic=True)}
        )

    class Reading(Two):
        __tablename__ = "keyed"
        k: Mapped[str] = mapped_column(B(), primary_key=True)

    One.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO keyed VALUES ('b:x')")
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, One.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with sessions() as session:
        assert session.get(Reading, "x") is not None
        query = select(Reading).where(Reading.k == "x").options(Guarded())
        assert len(session.scalars(query).all()) == 1
        assert session.get(Guarding, "x") is None
    plugin.unlisten()


def test_a_fence_is_logged_once_until_the_guard_is_built(plugin, engine, caplog) -> None:
    def lines() -> int:
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE teams SET id = id + 1000")
        return sum("until it is built again" in line for line in caplog.messages)

    caplog.set_level(logging.WARNING, "bloomstore.sql")
    both = 2  # guards of the table
    assert [lines() for _ in range(3)] == [both] * 3
    plugin.build(engine)
    assert [lines() for _ in range(3)] == [2 * both] * 3
    assert plugin.probe(Team.id, 1) == Answer.UNKNOWN


class Counter:
    """Listeners that count, log and measure."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def method(self, conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.seen.append(statement)

    def measures(
        self, conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, *rest: Any
    ) -> None:
        conn.info.setdefault("begun", []).append(1)
        self.seen.append((statement, parameters))


def uses(conn: Any, cursor: Any, *rest: Any) -> None:
    cursor.execute("SELECT 1")


def uses_inside(conn: Any, *rest: Any) -> None:
    def later() -> Any:
        return conn.connection

    later()


def passes_on(*given: Any) -> None:
    uses(*given)


def uses_in_a_list(conn: Any, cursor: Any, *rest: Any) -> None:
    [apply(cursor) for apply in (print,)]


def uses_in_a_loop(conn: Any, cursor: Any, *rest: Any) -> None:
    for apply in (print,): apply(cursor)  # fmt: skip  # noqa: E701


def uses_beside_info(conn: Any, cursor: Any, *rest: Any) -> None:
    print(cursor, conn.info)


def uses_another_way(*given: Any) -> None:
    SOMEWHERE.connection.cursor()


def counts(*given: Any) -> None:
    logging.getLogger(__name__).debug("a statement")


HARMLESS = [Counter().method, Counter().measures, counts, lambda *rest: None]
SOMEWHERE: Any = None
HARMFUL = [
    uses, uses_inside, passes_on, print, lambda conn, *rest: [conn][0].info, uses_in_a_list,
    uses_in_a_loop, uses_beside_info, uses_another_way,
]  # fmt: skip


@pytest.mark.parametrize("listener", [*HARMLESS, *HARMFUL])
@pytest.mark.parametrize(
    "event", ["before_cursor_execute", "after_cursor_execute", "before_execute"]
)
def test_listeners_that_only_watch_are_told_from_those_that_use_the_connection(
    engine, event, listener
) -> None:
    sa.event.listen(engine, event, listener)
    assert foreign_listeners.may_use(engine, event) is (listener in HARMFUL)


def cursor_counts(c: Any, cur: Any, stmt: str, params: Any, ctx: Any, many: bool) -> None:
    SEEN.append((stmt, params, many))


def cursor_uses_first(statement: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> None:
    SEEN.append(statement)


def cursor_uses_second(a: Any, parameters: Any, c: Any, d: Any, e: Any, f: Any) -> None:
    SEEN.append(parameters)


def cursor_uses_fifth(a: Any, b: Any, c: Any, d: Any, name: Any, f: Any) -> None:
    SEEN.append(name)


def execute_counts(c: Any, what: Any, many: Any, given: Any, how: Any) -> None:
    SEEN.append((what, many, given, how))


def execute_uses_first(self: Any, b: Any, c: Any, d: Any, e: Any) -> None:
    SEEN.append(self)


def takes_the_rest(a: Any, b: Any, *statement: Any) -> None:
    SEEN.append(statement)


def takes_names(a: Any, b: Any, *, params: Any = None, **statement: Any) -> None:
    SEEN.append((params, statement))


class Positions:
    """Listeners that are methods: their first argument is not given by SQLAlchemy."""

    def counts(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> None:
        SEEN.append((self, c, d, f))

    def uses(self, a: Any, statement: Any, c: Any, d: Any, e: Any, f: Any) -> None:
        SEEN.append(statement)


SEEN: list[Any] = []
OF_CURSOR, OF_EXECUTE = "before_cursor_execute", "before_execute"


@pytest.mark.parametrize(
    ("event", "listener", "is_used"),
    [
        (OF_CURSOR, cursor_counts, False),
        (OF_CURSOR, Positions().counts, False),
        (OF_EXECUTE, execute_counts, False),
        (OF_CURSOR, cursor_uses_first, True),
        (OF_CURSOR, cursor_uses_second, True),
        (OF_CURSOR, cursor_uses_fifth, True),
        (OF_CURSOR, Positions().uses, True),
        (OF_EXECUTE, execute_uses_first, True),
        (OF_CURSOR, takes_the_rest, True),
        (OF_CURSOR, takes_names, True),
    ],
)
@pytest.mark.parametrize("returns", [True, False])
def test_arguments_are_told_by_their_positions(engine, event, listener, is_used, returns) -> None:
    """SQLAlchemy passes them by position, so their names are free."""
    sa.event.listen(engine, event, listener, retval=returns)
    assert foreign_listeners.may_use(engine, event) is is_used


def named_counts(statement: str, **rest: Any) -> None:
    SEEN.append(statement)


def named_uses(statement: str, executemany: bool, cursor: Any, **rest: Any) -> None:
    SEEN.append(cursor)


def named_changes(parameters: Any, **rest: Any) -> None:
    parameters["id_1"] = 5


@pytest.mark.parametrize(
    ("listener", "is_used", "is_changed"),
    [(named_counts, False, False), (named_uses, True, False), (named_changes, False, True)],
)
def test_arguments_that_are_passed_by_name_are_told_by_it(
    engine, listener, is_used, is_changed
) -> None:
    sa.event.listen(engine, OF_CURSOR, listener, named=True)
    assert foreign_listeners.may_use(engine, OF_CURSOR) is is_used
    assert foreign_listeners.may_change_values(engine) is is_changed


def replaces_all(conn: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
    parameters.update({"id_1": 5})


def renamed(conn: Any, a: Any, b: Any, c: Any, *rest: Any) -> None:
    c["id_1"] = 5


def sets_any(*given: Any) -> None:
    given[3]["id_1"] = 5


class Keeper:
    """Listeners that measure and keep."""

    def times(
        self, conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        conn.info["begun"] = 1
        self.last = parameters


def test_listeners_that_change_values_are_told_from_those_that_keep_them(engine) -> None:
    changing: list[Any] = [lowers_parameters, replaces_all, renamed, sets_any]
    for listener in (*changing, *HARMLESS, Keeper().times):
        sa.event.listen(engine, "before_cursor_execute", listener)
        assert foreign_listeners.may_change_values(engine) is (listener in changing), listener
        sa.event.remove(engine, "before_cursor_execute", listener)
    sa.event.listen(engine, "before_execute", lowers_binds)
    assert foreign_listeners.may_change_values(engine)
