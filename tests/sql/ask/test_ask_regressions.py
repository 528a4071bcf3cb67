"""Lookups that once got a wrong "no", or another result than a plain session's."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.ext.declarative import ConcreteBase
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession
from tests.sql.support.kinds import only_postgresql, only_sqlite
from tests.sql.support.models import Base, Member, Team, User
from tests.sql.support.tables import built, table_of, text_type


class Prefixed(sa.TypeDecorator[str]):
    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else f"p:{value}"


def test_the_type_of_the_bind_decides_what_is_sent(store, engine, kind) -> None:
    table = table_of(text_type(kind))
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        sent = sa.bindparam("e", type_=Prefixed(20))
        connection.execute(sa.insert(table).values(id=1, c=sent), {"e": "zz"})
    assert plugin.probe(table.c.c, "p:zz") is Answer.MAYBE
    plugin.unlisten()


def test_a_list_that_is_used_twice_is_not_pruned(plugin, engine, sessions) -> None:
    with sessions.begin() as session:
        session.add(Team(id=5))
        session.flush()
        session.add(User(id=1, email="one@x", team_id=5))
    ids: Any = sa.bindparam("ids", expanding=True)
    query = select(User).where(User.id.in_(ids), User.team_id.in_(ids)).options(Guarded())
    with sessions() as session:
        assert len(session.scalars(query, {"ids": [1, 5, 99]}).all()) == 1


def test_a_union_below_is_left_alone(plugin, sessions) -> None:
    with sessions.begin() as session:
        session.add(Team(id=5))
    with sessions() as session:
        query = session.query(User.id).union(session.query(Team.id)).filter(User.id == 5)
        assert query.options(Guarded()).all() == [(5,)]


def test_a_row_for_nothing_is_returned(plugin, sessions, kind) -> None:
    if kind != "postgresql":
        pytest.skip("GROUP BY ROLLUP is tested on PostgreSQL")
    query = select(User.id).where(User.id == 99).group_by(sa.func.rollup(User.id))
    with sessions() as session:
        assert session.execute(query.options(Guarded())).all() == [(None,)]


def test_concrete_inheritance_is_left_alone(store, engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Person(ConcreteBase, Own):
        __tablename__ = "trap_persons"
        id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})
        __mapper_args__ = {"polymorphic_identity": "person", "concrete": True}  # noqa: RUF012

    class Clerk(Person):
        __tablename__ = "trap_clerks"
        id: Mapped[int] = mapped_column(primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "clerk", "concrete": True}  # noqa: RUF012

    plugin = built(store, engine, Own.metadata)
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin.listen(sessions)
    with sessions.begin() as session:
        session.add(Clerk(id=5))
    with sessions() as session:
        assert session.get(Person, 5) is not None
        query = select(Person).where(Person.id == 5).options(Guarded())
        assert session.scalars(query).one() is not None
    plugin.unlisten()


def test_the_caller_may_say_where_to_ask(plugin, engine, sessions, tmp_path) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    Base.metadata.create_all(other)
    with other.begin() as connection:
        connection.execute(sa.insert(User).values(id=7, email="elsewhere@x"))
    query = select(User).where(User.email == "elsewhere@x").options(Guarded())
    with sessions() as session:
        assert session.scalars(query, bind_arguments={"bind": other}).one().id == 7
    with GuardedSession(binds={User: other}) as session:
        plugin.listen(session)
        assert session.get(User, 7) is not None
    other.dispose()


def test_nothing_is_answered_after_unlisten_in_an_open_session(plugin, sessions, sent) -> None:
    with sessions() as session:
        session.execute(select(User.id)).all()
        asks = select(User.id).where(User.id == 79).options(Guarded())
        sent()
        session.scalars(asks).all()
        assert sent() == 0
        plugin.unlisten()
        session.scalars(asks).all()
        session.get(User, 79)
        assert sent() == 2


def test_two_classes_of_one_table_are_asked_where_each_is_bound(plugin, engine, tmp_path) -> None:
    class Other(Base):
        __table__ = User.__table__

    elsewhere = sa.create_engine(f"sqlite:///{tmp_path}/elsewhere.db")
    Base.metadata.create_all(elsewhere)
    with elsewhere.begin() as connection:
        connection.execute(sa.insert(User).values(id=777, email="far@y"))
    made = sessionmaker(binds={User: elsewhere, Other: engine}, class_=GuardedSession)
    plugin.listen(made)
    with made() as session:
        assert session.get(Other, 5) is None
        assert session.get(User, 777) is not None
    elsewhere.dispose()
    Base.registry._dispose_cls(Other)


def test_a_session_whose_plugin_listened_elsewhere_meanwhile(
    plugin, engine, sessions, sent
) -> None:
    with sessions() as session:
        session.execute(select(User.id)).all()
        session.get(User, 5)
        session.get(User, 6)
        plugin.unlisten()
        plugin.listen(engine)
        plugin.build(engine)
        sent()
        session.get(User, 5)
        assert sent() == 1


@only_postgresql
@pytest.mark.parametrize("form", ["column", "term"])
def test_a_select_that_writes_is_sent(plugin, sessions, form) -> None:
    made = sa.insert(Team).values(id=5).returning(Team.id).cte("made")
    query = select(User.id).where(User.id == 99)
    query = query.add_columns(made.c.id).where(made.c.id == User.id) if form == "column" else query
    query = query.where(User.id.in_(select(made.c.id))) if form == "term" else query
    with sessions.begin() as session:
        assert session.execute(query.options(Guarded())).all() == []
    with sessions() as session:
        assert session.get(Team, 5) is not None


def test_rows_of_a_temporary_table_are_found(store, plugin, engine, sessions) -> None:
    other = sa.create_engine(engine.url)
    builds = BloomPlugin(store, Base.metadata)
    builds.listen(other)
    with sessions() as session:
        session.execute(sa.text("CREATE TEMPORARY TABLE users (id INTEGER PRIMARY KEY)"))
        session.execute(sa.text("INSERT INTO users (id) VALUES (7)"))
        session.commit()
        builds.build(other)
        query = select(User.id).where(User.id == 7).options(Guarded())
        assert session.scalars(query).all() == [7]
    builds.unlisten()
    other.dispose()
    engine.dispose()


@only_sqlite
def test_a_session_of_several_databases_is_refused(store, engine) -> None:
    plugin = BloomPlugin(store, Base.metadata)
    with pytest.raises(SpecError, match="several databases"):
        plugin.listen(sessionmaker(class_=ShardedSession))


@pytest.mark.parametrize("ident", [[1, "a"], {"team_id": 1, "name": "a"}, (1, "a")])
def test_a_key_of_two_columns_is_spelled_as_sqlalchemy_allows(plugin, sessions, ident) -> None:
    with sessions() as session:
        assert session.get(Member, ident) is None
        session.add(Member(team_id=1, name="a"))
        session.commit()
        session.expunge_all()
        assert session.get(Member, ident) is not None
        assert session.get(Member, ident) is not None  # which is in the session now


def lead_by_text(session: Any) -> None:
    session.execute(sa.text("SET LOCAL search_path TO tenant"))


def lead_by_cursor(session: Any) -> None:
    raw = session.connection().connection.dbapi_connection
    raw.cursor().execute("SET LOCAL search_path TO tenant")


def lead_by_options(session: Any) -> None:
    session.connection(execution_options={"schema_translate_map": {None: "tenant"}})


@only_postgresql
@pytest.mark.parametrize("lead", [lead_by_text, lead_by_cursor, lead_by_options])
@pytest.mark.parametrize("is_permitted", [False, True])
def test_a_listener_of_new_transactions_may_lead_them_elsewhere(
    plugin, engine, sessions, lead, is_permitted
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS tenant CASCADE; CREATE SCHEMA tenant")
        connection.exec_driver_sql("CREATE TABLE tenant.users (LIKE public.users INCLUDING ALL)")
        connection.exec_driver_sql("INSERT INTO tenant.users (id) VALUES (777)")
    plugin.build(engine, force=True)  # the text above has fenced it
    if is_permitted:
        with sessions() as session:
            assert session.get(User, 1) is None

    @sa.event.listens_for(sessions, "after_transaction_create")
    def created(session: Any, transaction: Any) -> None:
        if transaction.parent is None:
            lead(session)

    with sessions() as session:
        assert session.get(User, 777) is not None
    with sessions() as session:
        session.connection()
        assert session.get(User, 777) is not None
    with sessions() as session:
        found = session.scalar(select(User).where(User.id == 777).options(Guarded()))
        assert found is not None
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA tenant CASCADE")


def test_a_session_that_is_closed_for_good_says_so(plugin, engine) -> None:
    factory = sessionmaker(engine, class_=GuardedSession, close_resets_only=False)
    plugin.listen(factory)
    session = factory()
    assert session.get(User, 1) is None
    session.close()
    with pytest.raises(sa.exc.InvalidRequestError, match="permanently closed"):
        session.get(User, 1)
