"""Builds that once read the wrong rows, or waited for nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import sqlalchemy as sa

from bloomstore.sql import Answer, BloomPlugin
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.kinds import only_postgresql
from tests.sql.support.models import User
from tests.sql.support.tables import rows_from, run, table_of


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


@only_postgresql
def test_a_rebuild_reads_the_schema_that_is_translated(store, engine) -> None:
    table = table_of(sa.Integer)
    table.create(engine)
    run(engine, "DROP SCHEMA IF EXISTS far CASCADE", "CREATE SCHEMA far")
    run(engine, "CREATE TABLE far.trapped (LIKE trapped INCLUDING ALL)")
    run(engine, "INSERT INTO trapped VALUES (1, 11)")
    options = {"schema_translate_map": {None: "far"}}
    other = sa.create_engine(engine.url, execution_options=options)
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(other)
    plugin.build(other)
    with other.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=7))
    plugin.rebuild(other)
    assert plugin.probe(table.c.c, 7) is Answer.MAYBE
    plugin.unlisten()
    other.dispose()
    run(engine, "DROP SCHEMA far CASCADE")


@pytest.mark.parametrize("form", ["build", "rebuild"])
def test_a_temporary_table_is_not_built_from(store, engine, form) -> None:
    """It stays with a connection of the pool."""
    other = sa.create_engine(engine.url, pool_size=1)
    table = table_of(sa.Integer)
    table.create(other)
    with other.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, c=7))
    plugin = BloomPlugin(store, table.metadata)
    plugin.listen(other)
    run(other, "CREATE TEMPORARY TABLE trapped (id INTEGER PRIMARY KEY, c INTEGER)")
    getattr(plugin, form)(other)
    elsewhere = BloomPlugin(store, table.metadata)
    elsewhere.listen(engine)
    assert elsewhere.probe(table.c.c, 7) is Answer.MAYBE
    assert elsewhere.probe(table.c.c, 8) is Answer.ABSENT
    elsewhere.unlisten()
    plugin.unlisten()
    other.dispose()
