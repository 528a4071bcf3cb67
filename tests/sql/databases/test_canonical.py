"""The database is the oracle: whenever it finds a row, the guard has not said ABSENT.

For every column type every stored value is compared with every probe value, by the database and by
the guard. A probe that the driver or the server refuses has no answer to compare with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, StatementError

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, BuildError, Guard
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.guards.guard import ActiveGuard
from tests.sql.support import servers
from tests.sql.support.values import TYPES, USEFUL, fresh, generated

CASES = [(kind, name) for kind, types in TYPES.items() for name in types]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Which type of which database."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def kind(case: tuple[str, str]) -> str:
    """The database of the case."""
    if case[0] == "mariadb" and not servers.mariadb_is_here():
        pytest.skip("MARIADB IS NOT INSTALLED: install the package mariadb-server")
    return case[0]


@pytest.fixture
def guarded(case: tuple[str, str], kind: str, url: sa.URL, tmp_path: Path) -> Iterator[Any]:
    """A table with one guarded column of the type, a plugin that listens, and values."""
    type_, values = TYPES[kind][case[1]]
    engine = sa.create_engine(url)
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("thing", type_, info={"bloomstore": Guard()}),
    )
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS things")
        if kind == "postgresql":
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS citext")
    table.metadata.create_all(engine)
    with bloomstore.open(tmp_path / "filters") as store:
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(engine)
        yield plugin, engine, table, generated(values)
        plugin.unlisten()
    table.metadata.drop_all(engine)
    engine.dispose()


def accepted(call: Any) -> Any:
    """What the database says; REFUSED if it or the driver refuses."""
    try:
        return call()
    except (DBAPIError, StatementError, TypeError, ValueError, OverflowError, AttributeError):
        return REFUSED


REFUSED = object()


@pytest.mark.filterwarnings("ignore")
def test_a_match_is_never_absent(
    guarded: Any, kind: str, case: tuple[str, str], tmp_path: Path
) -> None:
    name = case[1]
    plugin, engine, table, values = guarded
    guard = plugin.guards["things.thing"]
    if not may_build(plugin, engine):
        assert name not in USEFUL[kind]
        assert {plugin.probe(table.c.thing, value).name for value in values} == {"UNKNOWN"}
        return
    numbered = dict(enumerate(values, 1))  # MariaDB makes a number of its own out of 0
    clear = {number: value for number, value in numbered.items() if has_key(guard, value)}
    insert(engine, table, clear)
    assert guard.why_unknown() == ""
    by_capture = compare(plugin, engine, table, values)
    if name in USEFUL[kind]:
        new = [value for value in fresh(name) if rows_with(engine, table, value) == []]
        answers = [plugin.probe(table.c.thing, value) for value in new]
        assert len(new) > 20
        assert answers.count(Answer.ABSENT) > 0.9 * len(new), Counter(map(repr, answers))
    insert(engine, table, {n: value for n, value in numbered.items() if n not in clear})  # fences
    compare(plugin, engine, table, values)
    plugin.unlisten()
    with bloomstore.open(tmp_path / "second") as store:  # keys that come from the scan alone
        plugin = BloomPlugin(store, table.metadata)
        plugin.listen(engine)
        by_scan = compare(plugin, engine, table, values) if may_build(plugin, engine) else 1
        plugin.unlisten()
    assert by_capture
    assert by_scan


def may_build(plugin: BloomPlugin, engine: sa.Engine) -> bool:
    """Whether the type has a canonical form, and every stored value a key."""
    try:
        plugin.build(engine)
    except BuildError:
        return False
    return True


def has_key(guard: ActiveGuard, value: Any) -> bool:
    try:
        guard.key_of(value)
    except Unclear:
        return False
    return True


def insert(engine: sa.Engine, table: sa.Table, values: dict[int, Any]) -> None:
    """Stores what the database takes."""

    def store(number: int, value: Any) -> None:
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(id=number, thing=value))

    for number, value in values.items():
        accepted(lambda number=number, value=value: store(number, value))


def rows_with(engine: sa.Engine, table: sa.Table, value: Any) -> Any:
    """Ids of the rows whose value the database finds equal; REFUSED if it refuses the value."""

    def ask() -> list[int]:
        with engine.connect() as connection:
            return list(connection.scalars(sa.select(table.c.id).where(table.c.thing == value)))

    return accepted(ask)


def compare(plugin: BloomPlugin, engine: sa.Engine, table: sa.Table, values: list[Any]) -> int:
    """Asks the guard and the database for every value; returns how many were found.

    Not only the answers are compared but the keys of each pair: in a filter, the key of one row
    can hide that the key of another is missing.
    """
    guard = plugin.guards["things.thing"]
    raw = sa.select(table.c.id, sa.type_coerce(table.c.thing, sa.types.NullType()))
    with engine.connect() as connection:
        scanned = {number: value for number, value in connection.execute(raw)}  # noqa: C416
    matched = 0
    for value in values:
        answer = plugin.probe(table.c.thing, value)
        found = rows_with(engine, table, value)
        if found is REFUSED or not found:
            continue
        matched += 1
        assert answer is not Answer.ABSENT, (value, [values[number - 1] for number in found])
        if guard.canon is None or not has_key(guard, value):
            continue
        key = guard.key_of(value)
        for number in found:
            was_sent = values[number - 1]
            if has_key(guard, was_sent):
                assert guard.key_of(was_sent) == key, (was_sent, value)
            try:
                stored = guard.canon.of(scanned[number])
            except Unclear:
                continue  # such a row keeps the guard from being built
            assert stored == key, (scanned[number], value)
    return matched
