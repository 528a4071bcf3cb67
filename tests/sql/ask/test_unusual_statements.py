"""What a plain session finds, a guarded one does not deny: unusual statements and sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy import Integer, bindparam, event, func, literal, select
from sqlalchemy.exc import InvalidRequestError, PendingRollbackError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    sessionmaker,
    with_loader_criteria,
)
from sqlalchemy.pool import StaticPool

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession

Sessions = sessionmaker[GuardedSession]


class Base(DeclarativeBase):
    pass


class Node(Base):
    __tablename__ = "nodes"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )
    parent: Mapped[int | None]
    marks: Mapped[list[Mark]] = relationship(
        primaryjoin=lambda: sa.and_(
            Mark.node_id == Node.id, Mark.tag.in_(bindparam("ids", [], expanding=True))
        ),
        viewonly=True,
    )


class Mark(Base):
    __tablename__ = "marks"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[int] = mapped_column(sa.ForeignKey("nodes.id"))
    tag: Mapped[int]


class OtherBase(DeclarativeBase):
    pass


class Shifted(sa.types.TypeDecorator[int]):
    """Sends 1000 more than it is given."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> int | None:
        return None if value is None else value + 1000

    def process_result_value(self, value: int | None, dialect: Any) -> int | None:
        return None if value is None else value - 1000


class Namesake(OtherBase):
    """Another program's idea of the same table."""

    __tablename__ = "nodes"
    id: Mapped[int] = mapped_column(Shifted, primary_key=True, autoincrement=False)


class Third(DeclarativeBase):
    pass


class Leaf(Third):
    __tablename__ = "leaves"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )


@pytest.fixture
def engine(engine: sa.Engine) -> sa.Engine:
    Base.metadata.drop_all(engine)
    Third.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    Third.metadata.create_all(engine)
    with engine.begin() as connection:
        rows: list[dict[str, Any]] = [
            {"id": 1, "parent": 99},
            {"id": 2, "parent": 1},
            {"id": 1005, "parent": None},
        ]
        connection.execute(sa.insert(Node), rows)
        connection.execute(sa.insert(Mark).values(id=1, node_id=1, tag=99))
    return engine


@pytest.fixture
def plugin(store: bloomstore.Store, engine: sa.Engine, sessions: Sessions) -> Any:
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    yield plugin
    plugin.unlisten()


WITH_VARIANT = Integer().with_variant(Shifted(), "sqlite", "postgresql", "mysql", "mariadb")
ANY: Any = bindparam("ids", expanding=True)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("query", "params"),
    [
        (lambda: select(Node.id).where(Node.id == bindparam("x", 999)).params(x=1), None),
        (lambda: select(Node.id).where(Node.id.in_(bindparam("x", [9]))).params(x=[1]), None),
        (lambda: select(Node.id).where(Node.id == bindparam("x")), {"x": 1}),
        (lambda: select(Node.id).where(Node.id.in_(ANY)), {"ids": [1, 77, 2]}),
        (lambda: select(Node.id).where(Node.id == bindparam("x", type_=WITH_VARIANT)), {"x": 5}),
        (lambda: select(Node.id).where(Node.id == literal(5, WITH_VARIANT)), None),
        (
            lambda: (
                select(Node.id)
                .where(Node.id.in_(ANY))
                .options(with_loader_criteria(Node, Node.parent.in_(ANY)))
            ),
            {"ids": [1, 99]},
        ),
    ],
)
def test_statements_find_what_they_find(
    engine: sa.Engine, sessions: Sessions, query: Any, params: Any
) -> None:
    with Session(engine) as plain, sessions() as guarded:
        for _ in range(3):  # plans and compiled statements are kept
            expected = sorted(plain.scalars(query(), params).all())
            assert expected
            found = guarded.scalars(query().options(Guarded()), params).all()
            assert sorted(found) == expected


@pytest.mark.usefixtures("plugin")
def test_an_iterator_is_not_used_up(sessions: Sessions) -> None:
    query = select(Node.id).where(Node.id.in_(ANY)).options(Guarded())
    with sessions() as session:
        for keys in ([1, 2], [1, 2, 77]):
            assert sorted(session.scalars(query, {"ids": iter(keys)}).all()) == [1, 2]


@pytest.mark.usefixtures("plugin")
def test_a_list_that_a_relationship_uses_too_is_not_pruned_there(
    engine: sa.Engine, sessions: Sessions
) -> None:
    query = select(Node).where(Node.id.in_(ANY)).options(joinedload(Node.marks))
    given = {"ids": [1, 99]}
    with Session(engine) as plain, sessions() as guarded:
        assert [len(node.marks) for node in plain.scalars(query, given).unique()] == [1]
        found = guarded.scalars(query.options(Guarded()), given).unique()
        assert [len(node.marks) for node in found] == [1]


def test_an_empty_list_after_a_write(plugin: BloomPlugin, sessions: Sessions) -> None:
    with sessions() as session:
        session.execute(sa.insert(Node).values(id=3))
        for values in ([], [None], [None, 3]):
            query = select(Node.id).where(Node.id.in_(values)).options(Guarded())
            assert session.scalars(query).all() == ([3] if 3 in values else [])
        assert plugin.partition(Node.id, [], connection=session.connection()) == ([], [])


def test_of_several_plugins_the_last_one_is_asked(
    store: bloomstore.Store, engine: sa.Engine, sessions: Sessions, plugin: BloomPlugin
) -> None:
    second = BloomPlugin(store, Third.metadata)
    second.listen(engine, sessions)
    second.build(engine)
    try:
        with sessions() as session:
            session.connection()
            assert session.get(Leaf, 900) is None
            session.execute(sa.insert(Leaf).values(id=905))
            assert session.get(Leaf, 905) is not None
            session.execute(sa.insert(Node).values(id=906))
            assert session.get(Node, 906) is not None
            query = select(Leaf.id).where(Leaf.id == 905).options(Guarded())
            assert session.scalars(query).all() == [905]
            assert plugin.probe(Node.id, 77) is Answer.ABSENT
    finally:
        second.unlisten()


@pytest.mark.usefixtures("plugin")
def test_a_class_with_another_type_for_the_same_table(
    engine: sa.Engine, sessions: Sessions
) -> None:
    with Session(engine) as plain, sessions() as guarded:
        assert plain.get(Namesake, 5) is not None
        assert guarded.get(Namesake, 5) is not None


@pytest.mark.usefixtures("plugin")
def test_a_session_that_decides_by_the_clause(
    engine: sa.Engine, sessions: Sessions, tmp_path: Path
) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    Base.metadata.create_all(other)
    with other.begin() as connection:
        connection.execute(sa.insert(Node).values(id=500))

    class Routed(GuardedSession):
        def get_bind(self, mapper: Any = None, *, clause: Any = None, **more: Any) -> Any:
            return engine if clause is None else other

    with Routed(info=sessions.kw["info"]) as session:
        assert session.get(Node, 500) is not None
        query = select(Node.id).where(Node.id == 500).options(Guarded())
        assert session.scalars(query).all() == [500]
    other.dispose()


@pytest.mark.parametrize("session_class", [GuardedSession, Session])
@pytest.mark.parametrize("is_factory", [True, False])
def test_a_transaction_may_have_begun_before_anybody_listens(
    plugin: BloomPlugin, engine: sa.Engine, session_class: type[Session], is_factory: bool
) -> None:
    factory = sessionmaker(engine, class_=session_class)
    query = select(Node.id).where(Node.id == 600).options(Guarded())
    with factory() as session:
        session.execute(sa.insert(Node).values(id=600))
        plugin.listen(factory if is_factory else session)
        for _ in range(2):
            assert session.get(Node, 600) is not None
            assert session.scalars(query).all() == [600]
            session.expunge_all()
        session.rollback()
        session.execute(sa.insert(Node).values(id=600))
        assert session.get(Node, 600) is not None
        assert session.scalars(query).all() == [600]


@pytest.mark.usefixtures("plugin")
def test_a_transaction_that_has_failed_answers_nothing(sessions: Sessions) -> None:
    with sessions() as session:
        assert session.get(Node, 70) is None
        session.add(Node(id=1))
        with pytest.raises(sa.exc.IntegrityError):
            session.flush()
        for _ in range(2):
            with pytest.raises(PendingRollbackError):
                session.get(Node, 71)
            with pytest.raises(PendingRollbackError):
                session.scalars(select(Node).where(Node.id == 71).options(Guarded())).all()


@pytest.mark.usefixtures("plugin")
def test_a_savepoint_that_has_failed_answers_nothing(sessions: Sessions) -> None:
    with sessions() as session:
        session.connection()  # begins
        for key in (69, 70):
            assert session.get(Node, key) is None
        session.begin_nested()
        assert session.get(Node, 70) is None
        session.add(Node(id=1))
        with pytest.raises(sa.exc.IntegrityError):
            session.flush()
        session.expunge_all()
        for _ in range(2):
            with pytest.raises(PendingRollbackError):
                session.get(Node, 71)
        session.rollback()
        assert session.get(Node, 71) is None


def test_binds_of_any_table_in_a_statement_count(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions, tmp_path: Path
) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    Base.metadata.create_all(other)
    with other.begin() as connection:
        connection.execute(sa.insert(Node).values(id=700))
        connection.execute(sa.insert(Mark).values(id=1, node_id=700, tag=1))
    nodes: Any = Node.__table__
    joined = select(Node.id).join(Mark, Mark.node_id == Node.id).where(Node.id == 700)
    for binds, statement in (
        ({nodes: other}, select(nodes.c.id).where(nodes.c.id == 700)),
        ({Mark.__table__: other}, joined),
        ({Mark: other}, joined),
        ({Mark.__table__: other}, joined.where(Node.id.in_([700, 701]))),
    ):
        with Session(engine, binds=cast("Any", binds)) as session:
            expected = session.scalars(statement).all()
        factory = sessionmaker(engine, class_=GuardedSession, binds=binds)
        plugin.listen(factory)
        with factory() as session:
            for _ in range(2):
                assert session.scalars(statement.options(Guarded())).all() == expected
    other.dispose()


def test_a_session_that_must_be_begun_says_so(plugin: BloomPlugin, engine: sa.Engine) -> None:
    factory = sessionmaker(engine, class_=GuardedSession, autobegin=False)
    plugin.listen(factory)
    with factory() as session:
        with pytest.raises(InvalidRequestError, match="Autobegin"):
            session.get(Node, 71)
        with session.begin():
            assert session.get(Node, 71) is None


@pytest.mark.skipif(
    not hasattr(Session(), "execution_options"), reason="SQLAlchemy 2.0 has no such options"
)
def test_a_session_with_a_translated_schema_is_left_alone(
    plugin: BloomPlugin, tmp_path: Path, sessions: Sessions, engine: sa.Engine
) -> None:
    if engine.dialect.name != "sqlite":
        pytest.skip("attached databases are SQLite's")

    @event.listens_for(engine, "connect")
    def attach(raw: Any, _: Any) -> None:
        raw.execute(f"ATTACH '{tmp_path / 'other.db'}' AS other")

    engine.dispose()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE other.nodes (id INTEGER PRIMARY KEY, parent INT)")
        connection.exec_driver_sql("INSERT INTO other.nodes VALUES (500, NULL)")
    plugin.build(engine)
    options = {"schema_translate_map": {None: "other"}}
    factory = sessionmaker(engine, class_=GuardedSession, execution_options=options)
    plugin.listen(factory)
    with factory() as session:
        assert session.get(Node, 500) is not None
    query = select(Node.id).where(Node.id == 500).options(Guarded())
    with factory() as session:
        assert session.scalars(query).all() == [500]
    with sessions() as session:
        session.connection()  # begins
        assert [session.get(Node, 500), session.get(Node, 501)] == [None, None]
        session.connection().execution_options(schema_translate_map={None: "other"})
        assert session.get(Node, 500) is not None
        assert session.scalars(query).all() == [500]


def test_a_lock_may_be_asked_for_by_an_empty_dict(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions
) -> None:
    sent: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    with sessions() as session:
        for _ in range(3):
            session.expunge_all()
            session.get(Node, 1, with_for_update={})
    with Session(engine) as plain:
        plain.get(Node, 1, with_for_update={})
    asked = [statement for statement in sent if "WHERE" in statement]
    assert asked == asked[-1:] * 4


def test_sessions_that_share_one_connection_see_each_other(tmp_path: Path) -> None:
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    factory = sessionmaker(engine, class_=GuardedSession)
    query = select(Node.id).where(Node.id == 5).options(Guarded())
    with bloomstore.open(tmp_path / "store") as store:
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine, factory)
        plugin.build(engine)
        with factory() as one, factory() as two:
            assert one.get(Node, 4) is None
            one.add(Node(id=5))
            one.flush()
            assert two.get(Node, 5) is not None
            assert two.scalars(query).all() == [5]
            assert one.get(Node, 6) is None
        plugin.unlisten()
    engine.dispose()


def test_a_search_path_may_be_set_by_a_function(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions
) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("PostgreSQL has the function")
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS s2 CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA s2")
        connection.exec_driver_sql("CREATE TABLE s2.nodes (id bigint PRIMARY KEY, parent int)")
        connection.exec_driver_sql("INSERT INTO s2.nodes VALUES (777, NULL)")
    plugin.build(engine)
    bound = sa.text("SELECT set_config(:name, :value, true)")
    for statement in (
        select(func.set_config("search_path", "s2", True)),
        bound.bindparams(name="search_path", value="s2"),
    ):
        with sessions() as session:
            session.execute(statement)
            assert session.get(Node, 777) is not None


def test_a_select_that_a_listener_turns_into_a_write_is_seen(
    plugin: BloomPlugin, engine: sa.Engine
) -> None:
    def other(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> Any:
        if statement.startswith("SELECT 'turn me'"):
            statement = "INSERT INTO nodes (id) VALUES (4242)"
        return statement, parameters

    event.listen(engine, "before_cursor_execute", other, retval=True)
    try:
        for _ in range(2):
            with engine.connect() as connection:
                connection.execute(select(sa.literal_column("'turn me'")))
                connection.commit()
            assert plugin.probe(Node.id, 4242) is not Answer.ABSENT
            with engine.begin() as connection:
                connection.execute(sa.delete(Node).where(Node.id == 4242))
            plugin.build(engine)
            assert plugin.probe(Node.id, 4242) is Answer.ABSENT
    finally:
        event.remove(engine, "before_cursor_execute", other)


class Disguised(sa.Select[Any]):
    inherit_cache = True


@compiles(Disguised)
def _(element: Any, compiler: Any, **more: Any) -> str:
    return "INSERT INTO nodes (id) VALUES (4343)"


def test_a_select_that_is_compiled_to_a_write_is_seen(
    plugin: BloomPlugin, engine: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(Disguised(sa.literal_column("1")))
    assert plugin.probe(Node.id, 4343) is not Answer.ABSENT


class Moved(sa.Insert):
    inherit_cache = True


@compiles(Moved)
def _(element: Any, compiler: Any, **more: Any) -> str:
    return str(compiler.visit_insert(element, **more)).replace("VALUES (", "VALUES (4500 + ")


def test_an_insert_that_is_compiled_to_another_one_is_seen(
    plugin: BloomPlugin, engine: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(Moved(cast("sa.Table", Node.__table__)).values(id=5))
        assert connection.scalars(select(Node.id).where(Node.id == 4505)).all() == [4505]
    assert plugin.probe(Node.id, 4505) is not Answer.ABSENT


def test_a_write_inside_of_an_option_is_seen(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions
) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("PostgreSQL has common table expressions that write")
    added = sa.insert(Node).values(id=4444).returning(Node.id).cte("added")
    criteria = with_loader_criteria(Node, Node.id.not_in(select(added.c.id)))
    with sessions() as session:
        session.scalars(select(Node).options(criteria)).all()
        session.commit()
    assert plugin.probe(Node.id, 4444) is not Answer.ABSENT
