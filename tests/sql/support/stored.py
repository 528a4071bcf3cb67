"""A table `stored` with one guarded column of any type, and the values in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard


def table_of(type_: Any) -> sa.Table:
    return sa.Table(
        "stored",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", type_, info={"bloomstore": Guard()}),
    )


def live(engine: sa.Engine, type_: str, *values: Any) -> None:
    """A table whose column has this type, made by an engine to which nobody listens."""
    other = sa.create_engine(engine.url)
    with other.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS stored")
        connection.exec_driver_sql(f"CREATE TABLE stored (id INTEGER PRIMARY KEY, c {type_})")
        for number, value in enumerate(values, 1):
            connection.execute(
                sa.text("INSERT INTO stored VALUES (:n, :v)"), {"n": number, "v": value}
            )
    other.dispose()


@contextlib.contextmanager
def guarding(store: bloomstore.Store, engine: sa.Engine, table: sa.Table) -> Iterator[BloomPlugin]:
    """A plugin that listens, and a guard that is built if it can be."""
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(engine)
    try:
        with contextlib.suppress(BuildError):
            plugin.build(engine)
        yield plugin
    finally:
        plugin.unlisten()


def every_match_is_known(plugin: BloomPlugin, engine: sa.Engine, table: sa.Table) -> list[Any]:
    """Asserts that no stored value is ABSENT that the database finds; returns them."""
    with engine.connect() as connection:
        found = list(connection.scalars(select(table.c.c)))
        for value in found:
            if connection.scalar(select(sa.func.count()).where(table.c.c == value)):
                assert plugin.probe(table.c.c, value) is not Answer.ABSENT, value
    return found


def insert(engine: sa.Engine, table: sa.Table, *values: Any) -> None:
    for number, value in enumerate(values, 1):
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(id=number, c=value))


def only(kind: str, *kinds: str) -> None:
    if kind not in kinds:
        pytest.skip(f"it is about {', '.join(kinds)}")
