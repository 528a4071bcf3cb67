"""A get that is sent finds what a plain one finds, by the same SQL, the first time and later."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    registry,
    relationship,
    sessionmaker,
    with_loader_criteria,
)

import bloomstore
from bloomstore.sql import BloomPlugin, Guard, GuardedSession

from .conftest import Sent

Sessions = sessionmaker[GuardedSession]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"execution_options": {"mark": 1}},
    {"execution_options": {"mark": 2}},
]


class Base(DeclarativeBase):
    pass


class Root(Base):
    """Its branches come in the same statement: three rows for one object."""

    __tablename__ = "roots"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )
    kind: Mapped[str] = mapped_column(sa.String(10))
    branches: Mapped[list[Branch]] = relationship(lazy="joined")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "root"}  # noqa: RUF012


class Deep(Root):
    """Lives in two tables."""

    __tablename__ = "deep_roots"
    id: Mapped[int] = mapped_column(
        sa.ForeignKey("roots.id"),
        primary_key=True,
        autoincrement=False,
        info={"bloomstore": Guard()},
    )
    depth: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "deep"}  # noqa: RUF012


class Branch(Base):
    __tablename__ = "branches"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    root_id: Mapped[int] = mapped_column(sa.ForeignKey("roots.id"))


@pytest.fixture
def plugin(store: bloomstore.Store, engine: sa.Engine, sessions: Sessions) -> Any:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        for number in range(1, 9):
            branches = [Branch(id=10 * number + each) for each in range(3)]
            session.add(
                Deep(id=number, depth=number, branches=branches)
                if number % 2
                else Root(id=number, branches=branches)
            )
        session.commit()
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    yield plugin
    plugin.unlisten()


def facts_of(found: Any) -> Any:
    return found and (
        type(found),
        found.id,
        getattr(found, "depth", None),
        sorted(branch.id for branch in found.branches),
    )


@pytest.mark.parametrize("entity", [Root, Deep])
def test_the_same_is_found_by_the_same_statement(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions, sent: Sent, entity: Any
) -> None:
    plain = sessionmaker(engine)
    for number in [1, 3, 2, 4, 5, 7, 8, 6, 1]:
        found = []
        for factory in (plain, sessions):
            sent()
            with factory() as session:
                facts = facts_of(session.get(entity, number))
            found.append((facts, [each for each in sent.statements if "WHERE" in each]))
        unguarded, guarded = found
        assert guarded[0] == unguarded[0]
        assert guarded[1] == unguarded[1] or (entity is Deep and guarded == (None, []))


def test_listeners_options_and_classes_of_ones_own_are_heard(
    plugin: BloomPlugin, engine: sa.Engine, sessions: Sessions
) -> None:
    heard = []

    class Mine(GuardedSession):
        def execute(self, *given: Any, **options: Any) -> Any:
            heard.append(options["params"])
            return super().execute(*given, **options)

    mine = sessionmaker(engine, class_=Mine)
    plugin.listen(mine)
    with mine() as session:
        assert [session.get(Root, number).id for number in (2, 4, 6)] == [2, 4, 6]
        assert heard == [{"pk_1": 2}, {"pk_1": 4}, {"pk_1": 6}]

    @sa.event.listens_for(sessions, "do_orm_execute")
    def only_some(state: Any) -> None:
        state.statement = state.statement.options(with_loader_criteria(Root, Root.id != 4))

    with sessions() as session:
        assert [facts and facts.id for facts in map(session.get, [Root] * 3, (2, 4, 6))] == [
            2,
            None,
            6,
        ]


@pytest.mark.skipif(
    not hasattr(Session(), "execution_options"), reason="SQLAlchemy 2.0 has no such options"
)
def test_options_of_a_session_hold_for_its_gets_alone(
    plugin: BloomPlugin, engine: sa.Engine
) -> None:
    marks = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def look(*given: Any) -> None:
        marks.append(given[-2].execution_options.get("mark"))

    factories = [sessionmaker(engine, class_=GuardedSession, **options) for options in OPTIONS]
    plugin.listen(*factories)
    with factories[1]() as session:
        assert [session.get(Root, number).id for number in (4, 6, 8)] == [4, 6, 8]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        for place in order:
            with factories[place]() as session:
                session.get(Root, 2)  # begins
                marks.clear()
                assert [session.get(Root, number).id for number in (4, 6, 8)] == [4, 6, 8]
                assert marks == [(None, 1, 2)[place]] * 3


def test_a_class_that_is_mapped_anew_is_read_from_its_new_table(
    store: bloomstore.Store, engine: sa.Engine, sessions: Sessions
) -> None:
    class Thing:
        name: str

    metadata = sa.MetaData()
    old, new = (
        sa.Table(
            name,
            metadata,
            sa.Column(
                "id",
                sa.Integer,
                primary_key=True,
                autoincrement=False,
                info={"bloomstore": Guard()},
            ),
            sa.Column("name", sa.String(10)),
        )
        for name in ("old_things", "new_things")
    )
    metadata.create_all(engine)
    with engine.begin() as connection:
        for table in (old, new):
            numbers = (1, 2, 3) if table is old else (1, 2, 3, 4, 5)
            rows = [{"id": number, "name": table.name[:3]} for number in numbers]
            connection.execute(table.insert(), rows)
    plugin = BloomPlugin(store, metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    for table in (old, new):
        mappers = registry()
        mappers.map_imperatively(Thing, table)
        with sessions() as session:
            found = [session.get(Thing, number) for number in (1, 2, 3, 4, 5, 6)]
        names = [thing and thing.name for thing in found]
        assert names == (["old"] * 3 + [None] * 3 if table is old else ["new"] * 5 + [None])
        mappers.dispose()
    plugin.unlisten()
