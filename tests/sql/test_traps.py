"""Programs that once got a wrong "no", lost rows or were stopped by a guard."""

from __future__ import annotations

import contextlib
import enum
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.ext.declarative import ConcreteBase
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column, sessionmaker
from sqlalchemy.pool import StaticPool

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession

from .conftest import every_row_is_known
from .models import Base, Member, Team, User


class Color(str, enum.Enum):  # noqa: UP042  the older form, whose str() is its name
    RED = "red"


class Empty(sa.TypeDecorator[str]):
    """None is stored as an empty string."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return "" if value is None else value


class Prefixed(sa.TypeDecorator[str]):
    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else f"p:{value}"


def table_of(type_: Any, **guard: Any) -> sa.Table:
    return sa.Table(
        "trapped",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", type_, info={"bloomstore": Guard(**guard)}),
    )


def built(store: bloomstore.Store, engine: sa.Engine, metadata: sa.MetaData) -> BloomPlugin:
    metadata.create_all(engine)
    plugin = BloomPlugin(store, metadata)
    plugin.listen(engine)
    plugin.build(engine)
    return plugin


def text_type(kind: str) -> sa.String:
    return sa.String(20, collation="utf8mb4_bin" if kind == "mariadb" else None)


def test_a_str_enum_may_be_written_in_any_way(store, engine, kind) -> None:
    table = table_of(text_type(kind))
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=Color.RED))
    assert plugin.probe(table.c.c, "red") is not Answer.ABSENT
    assert plugin.probe(table.c.c, Color.RED) is not Answer.ABSENT
    plugin.unlisten()


def test_none_may_be_sent_as_something(store, engine, kind) -> None:
    if kind == "mariadb":
        pytest.skip("a TypeDecorator cannot name a collation there")
    table = table_of(Empty(20), deterministic=True)
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=None))
    assert plugin.probe(table.c.c, "") is Answer.MAYBE
    plugin.unlisten()


def test_the_type_of_the_bind_decides_what_is_sent(store, engine, kind) -> None:
    table = table_of(text_type(kind))
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        sent = sa.bindparam("e", type_=Prefixed(20))
        connection.execute(sa.insert(table).values(id=1, c=sent), {"e": "zz"})
    assert plugin.probe(table.c.c, "p:zz") is Answer.MAYBE
    plugin.unlisten()


def test_rows_that_a_commit_listener_writes_have_their_keys(plugin, engine) -> None:
    def write(connection: sa.Connection) -> None:
        if not connection.info.pop("again", False):
            connection.info["again"] = True
            connection.execute(sa.insert(Team).values(id=321))

    sa.event.listen(engine, "commit", write)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(email="outbox@x"))
    sa.event.remove(engine, "commit", write)
    assert plugin.probe(Team.id, 321) is Answer.MAYBE
    every_row_is_known(plugin, engine)


def test_two_phase_without_prepare(plugin, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("two-phase commit is tested on PostgreSQL")
    connection = engine.connect()
    transaction = connection.begin_twophase()
    connection.execute(sa.insert(Team).values(id=77))
    transaction.commit()
    connection.close()
    assert plugin.probe(Team.id, 77) is Answer.MAYBE


def test_a_failed_statement_in_a_savepoint_raises_no_fence(plugin, engine, sessions) -> None:
    with sessions.begin() as session:
        session.add(User(email="twice@x"))
        session.flush()
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            session.execute(sa.insert(User.__table__).values(email="twice@x"))
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
    every_row_is_known(plugin, engine)


def test_a_list_that_is_used_twice_is_not_pruned(plugin, engine, sessions) -> None:
    with sessions.begin() as session:
        session.add(Team(id=5))
        session.flush()
        session.add(User(id=1, email="one@x", team_id=5))
    ids = sa.bindparam("ids", expanding=True)
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


def test_a_statement_that_translates_its_schema_is_captured(plugin, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("schemas are tested on PostgreSQL")
    other = sa.Table(
        "teams",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("label", sa.Uuid, default=sa.func.gen_random_uuid()),
        schema="tenant",
    )
    statement = sa.insert(other).values(id=9)
    with engine.begin() as connection:
        options = {"schema_translate_map": {"tenant": "public"}}
        connection.execute(statement, execution_options=options)
    assert plugin.probe(Team.id, 9) is not Answer.ABSENT


def test_an_upsert_names_columns_by_their_keys(store, engine, kind) -> None:
    if kind == "mariadb":
        pytest.skip("it has ON DUPLICATE KEY")
    from sqlalchemy.dialects import postgresql, sqlite

    table = sa.Table(
        "trapped",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String(20), key="mail", info={"bloomstore": Guard()}),
    )
    plugin = built(store, engine, table.metadata)
    made = (sqlite if kind == "sqlite" else postgresql).insert(table)
    with engine.begin() as connection:
        connection.execute(made.values(id=1, mail="first"))
        made = made.values(id=1, mail="first")
        connection.execute(
            made.on_conflict_do_update(index_elements=["id"], set_={"mail": "second"})
        )
    assert plugin.probe(table.c.mail, "second") is not Answer.ABSENT
    plugin.unlisten()


def test_one_name_is_one_guard(store) -> None:
    metadata = sa.MetaData()
    for name in ("first", "second"):
        sa.Table(name, metadata, sa.Column("a", sa.Integer, info={"bloomstore": Guard(name="x")}))
    with pytest.raises(SpecError, match="two guards"):
        BloomPlugin(store, metadata)


def test_a_pool_of_one_connection_loses_nothing(store) -> None:
    engine = sa.create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    Base.metadata.create_all(engine)
    plugin = BloomPlugin(store)  # guards are found on the tables of the statements
    plugin.listen(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(Team).values(id=1))
        connection.execute(sa.insert(Member).values(team_id=1, name="a"))
    plugin.build(engine)
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(Team)) == 1
        connection.execute(sa.insert(Team).values(id=2))
        with engine.connect() as second:
            second.execute(sa.insert(Team).values(id=3))
            connection.commit()
    assert every_row_is_known(plugin, engine) == 6
    plugin.unlisten()
    engine.dispose()


def test_a_closed_store_does_not_stop_the_application(store, engine, tmp_path) -> None:
    with bloomstore.open(tmp_path / "closing") as closing:
        plugin = BloomPlugin(closing, Base.metadata)
        plugin.listen(engine)
        plugin.build(engine)
    engine.dispose()
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(User)) == 0
    assert plugin.probe(User.email, "a@x") == Answer.UNKNOWN
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


def test_one_more_connection_does_not_fence_what_other_threads_write(plugin, engine) -> None:
    """Facts that are known already change nothing: not even for a moment."""
    guard = plugin.guards["users.id"]
    seen = []
    real = type(guard)._judge
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(guard), "_judge", lambda *rest: seen.append(1) or real(*rest))
        engine.dispose()
        with engine.connect() as connection:
            connection.execute(select(User.id)).all()
    assert not seen
    assert not guard.why_unknown()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)  # the form is then the same
def test_another_database_does_not_fence_the_filter(store, engine, tmp_path) -> None:
    """A program that is pointed at a test database must not put production's guard in doubt."""
    table = table_of(sa.Integer)
    built(store, engine, table.metadata).unlisten()
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    table.metadata.create_all(other)
    elsewhere = BloomPlugin(store, table.metadata)
    elsewhere.listen(other)
    with other.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    elsewhere.unlisten()
    other.dispose()
    assert not store["trapped.c"].fences


def test_keys_that_cannot_be_read_fence_the_guard_and_not_the_program(
    plugin, engine, monkeypatch
) -> None:
    def broken(*rest: Any) -> set[Any]:
        raise RuntimeError("a driver of tomorrow")

    monkeypatch.setattr("bloomstore.sql.capture.pending.keys_of", broken)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=77, email="x@y"))
    monkeypatch.undo()
    assert plugin.probe(User.id, 77) is not Answer.ABSENT
    assert "could not be read" in plugin.guards["users.id"].why_unknown()


def test_a_doubtful_guard_beside_a_sound_one(plugin, engine, store) -> None:
    """Both are written by one transaction: the fence of one is no part of the other's batch."""
    guard = plugin.guards["users.email"]
    note = guard.note()
    note.form = {**note.form, "canon": "another/1"}
    guard.write_note(note)
    guard._judge(guard._live)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=78, email="doubt@y"))
    assert plugin.probe(User.id, 78) is Answer.MAYBE
    assert plugin.probe(User.email, "doubt@y").name == "UNKNOWN"
    assert store["users.email"].fences


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


def test_a_writer_that_does_not_know_the_form_being_built_fences(store, engine) -> None:
    """Its connections are older than an ALTER: the keys it would add are of another form."""
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    guard = plugin.guards["trapped.c"]
    note = guard.fresh_note()
    note.building = {**guard.form(), "canon": "another/1"}
    guard.write_note(note)
    guard._judge(guard._live)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    assert any("in doubt" in why for why in store["trapped.c"].fences.values())
    plugin.unlisten()


def test_a_writer_whose_filter_was_replaced_by_a_build_adds_to_the_new_one(store, engine) -> None:
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    guard = plugin.guards["trapped.c"]
    store.drop("trapped.c")
    note = guard.fresh_note()
    note.building = guard.form()
    guard.write_note(note)
    other = store.create("trapped.c", guard.declared.guard.spec, fence="being built")
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    assert list(other.fences.values()) == ["being built"]
    other.unfence(*other.fences)
    assert 7 in other
    assert 8 not in other
    plugin.unlisten()


def test_a_build_does_not_wait_for_an_idle_connection_under_autocommit(plugin, engine) -> None:
    """A statement of many batches ends without a word; a failed one and a single one say it."""
    forms: list[Any] = [
        lambda on: on.execute(sa.insert(User), rows_from(1)),
        lambda on: on.execute(sa.insert(User).returning(User.id), rows_from(5000)).all(),
        lambda on: on.execute(sa.insert(User).values(id=4000, email="one@auto")),
        lambda on: on.execute(sa.insert(User).values(id=4000, email="two@auto")),  # it fails
    ]
    for form in forms:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            with contextlib.suppress(sa.exc.IntegrityError):
                form(connection)
            plugin.build(engine, User.id, force=True, patience=0.5)
    every_row_is_known(plugin, engine)


def rows_from(first: int) -> list[dict[str, Any]]:
    return [{"id": number, "email": f"{number}@auto"} for number in range(first, first + 2500)]


@pytest.mark.parametrize("form", ["insert", "update", "harmless"])
def test_a_table_that_is_only_a_name(plugin, engine, form) -> None:
    """sqlalchemy.table() has no types: its keys are not known, but which guards it concerns is."""
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="1@y", age=3))
    light = sa.table("users", sa.column("id"), sa.column("email"), sa.column("age"))
    statements = {
        "insert": sa.insert(light).values(id=2, email="2@y"),
        "update": sa.update(light).where(light.c.id == 1).values({"email": "2@y"}),
        "harmless": sa.update(light).values({light.c.age: 4}),
    }
    with engine.begin() as connection:
        connection.execute(statements[form])
    is_fenced = form != "harmless"
    assert (plugin.probe(User.email, "2@y").name == "UNKNOWN") is is_fenced
    every_row_is_known(plugin, engine)


FORMS: dict[str, Any] = {
    "alias of a class": lambda: sa.update(A := aliased(User)).values({A.email: A.email + "x"}),
    "alias of a table": lambda: sa.update(a := User.__table__.alias()).values(
        {a.c.email: a.c.email + "x"}
    ),
    "ordered": lambda: sa.update(a := User.__table__.alias()).ordered_values(
        (a.c.age, 1), (a.c.email, a.c.email + "x")
    ),
    "column()": lambda: sa.update(User.__table__).values({sa.column("email"): User.email + "x"}),
    "insert of column()": lambda: sa.insert(User.__table__).values(
        {sa.column("id"): 9, sa.column("email"): sa.func.lower("1@YX")}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_may_be_named_by_another_object(plugin, engine, form) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="1@y", age=3))
    with engine.begin() as connection:
        connection.execute(FORMS[form]())
    every_row_is_known(plugin, engine)


@pytest.mark.parametrize("form", ["session", "core", "text"])
def test_the_release_of_a_savepoint_may_be_the_commit(plugin, engine, sessions, form) -> None:
    """The driver of SQLite sends no BEGIN before a SAVEPOINT."""
    row = {"id": 31, "email": "31@y"}
    if form == "session":
        with sessions() as session:
            inner = session.begin_nested()
            session.add(User(**row))
            session.flush()
            inner.commit()
            every_row_is_known(plugin, engine)
            session.rollback()
    else:
        with engine.connect() as connection:
            if form == "core":
                with connection.begin_nested():
                    connection.execute(sa.insert(User).values(row))
            else:
                connection.execute(sa.text("SAVEPOINT a"))
                connection.execute(sa.insert(User).values(row))
                connection.execute(sa.text("RELEASE SAVEPOINT a"))
            every_row_is_known(plugin, engine)
            connection.rollback()
    every_row_is_known(plugin, engine)


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


def test_a_sequence_is_asked_before_its_row_is_sent(store, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("sequences are tested on PostgreSQL")
    table = sa.Table(
        "numbered",
        sa.MetaData(),
        sa.Column("id", sa.Integer, sa.Sequence("numbers"), primary_key=True,
                  info={"bloomstore": Guard()}),
        sa.Column("c", sa.Integer),
        implicit_returning=False,
    )  # fmt: skip
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values())
        connection.execute(sa.insert(table).values(id=40))
        connection.execute(sa.insert(table), [{"id": 50}, {"id": 51}])
    assert every_row_is_known(plugin, engine) == 4
    assert plugin.probe(table.c.id, 99) is Answer.ABSENT
    plugin.unlisten()
    table.metadata.drop_all(engine)


def test_a_row_that_was_sent_counts_though_its_statement_failed_afterwards(plugin, engine) -> None:
    def fails(*rest: object) -> None:
        raise RuntimeError("a listener that fails")

    with engine.connect() as connection:
        sa.event.listen(connection, "after_cursor_execute", fails)
        with pytest.raises(RuntimeError, match="a listener"):
            connection.execute(sa.insert(User).values(email="sent@x"))
        sa.event.remove(connection, "after_cursor_execute", fails)
        connection.commit()
    assert every_row_is_known(plugin, engine) == 2


def test_rows_before_the_one_that_failed_count(plugin, engine, kind) -> None:
    if kind == "postgresql":
        pytest.skip("it takes the whole transaction back")
    with engine.connect() as connection:
        rows = [{"email": "1@x"}, {"email": "2@x"}, {"email": "1@x"}]
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(sa.insert(User), rows)
        connection.commit()
    assert every_row_is_known(plugin, engine) == (4 if kind == "sqlite" else 0)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("when", ["each connection", "text", "text before a question"])
def test_temporary_triggers_are_seen(store, engine, when) -> None:
    """Those of SQLite belong to one connection, and are in no list of the file."""
    trigger = (
        "CREATE TEMP TRIGGER copies AFTER INSERT ON teams"
        " BEGIN INSERT INTO users (id) VALUES (new.id + 1000); END"
    )
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, Base.metadata)
    if when == "each connection":
        engine.dispose()
        sa.event.listen(engine, "connect", lambda raw, record: raw.execute(trigger) and None)
    plugin.listen(engine, sessions)
    with contextlib.suppress(bloomstore.sql.BuildError):
        plugin.build(engine)
    if when != "each connection":
        with engine.begin() as connection:
            connection.exec_driver_sql(trigger)
        if when == "text before a question":
            with sessions() as session:
                session.execute(select(User.id)).all()
                session.get(Team, 5)
        plugin.build(engine)
    with sessions.begin() as session:
        session.add(Team(id=777))
    with sessions() as session:
        written = session.scalar(select(sa.func.count()).where(User.id == 1777))
        assert bool(written) is (when == "each connection")  # the build has disposed of the other
        assert (session.get(User, 1777) is not None) is bool(written)
    plugin.unlisten()
