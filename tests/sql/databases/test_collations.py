"""Collations and operators that decide which texts are equal."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, sessionmaker

from bloomstore.sql import Answer, BloomPlugin, Guarded, GuardedSession
from tests.sql.support.stored import guarding, live, only, table_of


def test_an_operator_of_somebody_else(store, engine, kind) -> None:
    only(kind, "postgresql")
    live(engine, "VARCHAR(30)", "Abc")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION alike(varchar, varchar) RETURNS boolean IMMUTABLE LANGUAGE sql"
            " AS 'SELECT lower($1)::text = lower($2)::text'"
        )
        connection.exec_driver_sql(
            "CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = alike)"
        )
    table = table_of(sa.String(30))
    with guarding(store, engine, table) as plugin:
        assert "operator" in plugin.probe(table.c.c, "abc").reason


def casefolded(one: str, other: str) -> int:
    return (one.casefold() > other.casefold()) - (one.casefold() < other.casefold())


@pytest.mark.parametrize("name", ["BINARY", "NOCASE", "RTRIM"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_collation_in_the_place_of_a_built_in_one(store, engine, kind, name, is_late) -> None:
    only(kind, "sqlite")
    live(engine, f"TEXT COLLATE {name}", "\xc9")
    other = sa.create_engine(engine.url)

    def replace(raw: Any, record: Any) -> None:
        raw.create_collation(name, casefolded)

    table = table_of(sa.String())
    if not is_late:
        sa.event.listen(other, "connect", replace)
    with guarding(store, other, table) as plugin:
        if is_late:
            sa.event.listen(other, "connect", replace)
            other.dispose()
        with other.connect() as connection:
            assert connection.scalar(select(table.c.id).where(table.c.c == "\xe9")) == 1
        assert "collation" in plugin.probe(table.c.c, "\xe9").reason
    other.dispose()


@pytest.mark.parametrize("name", ["BINARY", "NOCASE", "RTRIM"])
def test_a_collation_that_is_replaced_whenever_a_connection_is_lent(
    store, engine, kind, name
) -> None:
    only(kind, "sqlite")

    class Words(DeclarativeBase):
        pass

    class Word(Words):
        __table__ = table_of(sa.String()).to_metadata(Words.metadata)

    live(engine, f"TEXT COLLATE {name}", "\xc9")
    other = sa.create_engine(engine.url)
    sessions = sessionmaker(other, class_=GuardedSession)
    plugin = BloomPlugin(store, Words.metadata)
    plugin.listen(other, sessions)
    plugin.build(other)
    sa.event.listen(other, "checkout", lambda raw, *_: raw.create_collation(name, casefolded))
    query = select(Word.__table__.c.id).where(Word.__table__.c.c == "\xe9")
    for _ in range(2):
        with sessions() as session:
            assert session.scalars(query).all() == [1]
            assert session.scalars(query.options(Guarded())).all() == [1]
    plugin.unlisten()
    other.dispose()


@pytest.mark.parametrize(
    ("columns", "is_known"),
    [
        ("c$x TEXT, c TEXT COLLATE NOCASE", True),
        ("c\u20ac TEXT, c TEXT COLLATE NOCASE", True),
        ("c\xa0 TEXT, c TEXT COLLATE NOCASE", True),  # a letter for SQLite
        ("c TEXT \ufeffCOLLATE NOCASE", False),  # and this one a space, in some of its versions
        ("C\xc4 TEXT, c TEXT COLLATE NOCASE, CHECK (c <> ')')", True),
        ("c TEXT COLLATE NOCASE, d INTEGER, PRIMARY KEY (id), UNIQUE (d) CHECK (d > 0)", True),
    ],
)
def test_each_column_has_its_own_collation(store, engine, kind, columns, is_known) -> None:
    only(kind, "sqlite")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE stored (id INTEGER, {columns})")
        connection.exec_driver_sql("INSERT INTO stored (id, c) VALUES (1, 'abc')")
    table = table_of(sa.String())
    with guarding(store, engine, table) as plugin:
        with engine.connect() as connection:
            assert connection.scalar(select(table.c.id).where(table.c.c == "ABC")) == 1
        assert plugin.probe(table.c.c, "ABC") is not Answer.ABSENT
        assert (plugin.probe(table.c.c, "abd") is Answer.ABSENT) is is_known
