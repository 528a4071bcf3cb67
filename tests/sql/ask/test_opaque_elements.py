"""Elements that SQLAlchemy renders as they are, without parentheses: their statement is sent.

`id = :id` and the text `a OR b` become `id = :id AND a OR b`, which has rows whatever the key is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest
import sqlalchemy as sa
from sqlalchemy import literal_column, select, text
from sqlalchemy.ext.compiler import compiles, deregister
from sqlalchemy.orm import Session, sessionmaker, with_loader_criteria

from bloomstore.sql import BloomPlugin, Guarded, GuardedSession
from tests.sql.support.models import User

EITHER = "users.email = 'a@x' OR users.email = 'b@x'"


class Either(sa.ColumnElement[bool]):
    """An element of the application's own."""

    inherit_cache = True
    _traverse_internals: ClassVar[list[Any]] = []  # type: ignore[misc]
    type = sa.Boolean()


@compiles(Either)
def render(element: Either, compiler: Any, **_: Any) -> str:
    return EITHER


ABSENT = User.id == 777
SHAPES: dict[str, Callable[[], Any]] = {
    "text": lambda: select(User).where(ABSENT).where(text(EITHER)),
    "text of columns": lambda: select(User.id).where(ABSENT).where(text(EITHER)),
    "text inside of an and": lambda: select(User).where(sa.and_(ABSENT, text(EITHER))),
    "literal column": lambda: select(User).where(ABSENT, literal_column(EITHER)),
    "own element": lambda: select(User).where(ABSENT, Either()),
    "list": lambda: select(User).where(User.id.in_([777, 778])).where(text(EITHER)),
    "criteria": lambda: select(User).where(ABSENT).options(with_loader_criteria(User, Either())),
    "lambda": lambda: (
        select(User).where(ABSENT).options(with_loader_criteria(User, lambda _: Either()))
    ),
    "hint": lambda: select(User.id).where(ABSENT).with_statement_hint("UNION ALL SELECT 5"),
    "comment": lambda: select(User).where(text("1 = 1 -- \n"), User.id == 777),
}


@pytest.fixture
def one(engine: sa.Engine, plugin: BloomPlugin) -> None:
    """There is a user whom the text names."""
    with Session(engine) as session:
        session.add(User(id=1, email="b@x"))
        session.commit()


@pytest.mark.parametrize("policy", ["explicit", "auto"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_rendered_as_it_is_makes_no_absent_key(
    store: Any, engine: sa.Engine, one: None, plugin: BloomPlugin, shape: str, policy: Any
) -> None:
    plugin.unlisten()
    sessions = sessionmaker(engine, class_=GuardedSession)
    asked = BloomPlugin(store, User.metadata, policy=policy)
    asked.listen(engine, sessions)
    asked.build(engine)
    statement = SHAPES[shape]()
    with Session(engine) as session:
        plain = len(session.execute(statement).all())
    with sessions() as session:
        session.execute(text("SELECT 1"))
        assert len(session.execute(statement.options(Guarded())).all()) == plain
        assert len(session.execute(statement).all()) == plain
    assert plain or shape == "comment"
    asked.unlisten()


def test_criteria_that_only_narrow_are_answered(
    engine: sa.Engine, plugin: BloomPlugin, sessions: Any, sent: Any
) -> None:
    criteria = with_loader_criteria(User, User.email != "z@x")
    with sessions() as session:
        session.execute(text("SELECT 1"))
        sent()
        asked = select(User).where(User.id == 777).options(criteria, Guarded())
        assert session.scalars(asked).all() == []
    assert sent() == 0


def test_elements_of_sqlalchemy_that_the_application_renders_are_sent(
    engine: sa.Engine, one: None, plugin: BloomPlugin, sessions: Any
) -> None:
    @compiles(sa.sql.functions.coalesce)
    def render_without_parentheses(element: Any, compiler: Any, **_: Any) -> str:
        return EITHER

    try:
        statement = select(User.id).where(ABSENT, cast("Any", sa.func.coalesce(User.age, 5)))
        with sessions() as session:
            assert session.scalars(statement.options(Guarded())).all() == [1]
    finally:
        deregister(sa.sql.functions.coalesce)


class Always(sa.types.TypeDecorator[str]):
    """Sends no value but a piece of SQL."""

    impl = sa.Text
    cache_ok = True

    def bind_expression(self, bindparam: Any) -> Any:
        return literal_column("'b@x' OR users.email = 'b@x'", sa.Text)


def test_types_that_send_sql_in_place_of_values_are_sent(
    engine: sa.Engine, one: None, plugin: BloomPlugin, sessions: Any
) -> None:
    term = sa.type_coerce(User.email, Always()) == "x"
    with sessions() as session:
        asked = select(User.id).where(ABSENT, term).options(Guarded())
        assert session.scalars(asked).all() == [1]
