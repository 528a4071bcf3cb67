"""One world per test: a database with empty tables, a store, a plugin that listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, GuardedSession

from . import servers
from .models import Base

KINDS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], sa.URL]]:
    """Kind -> URL; a server is started when the first test needs it."""
    with ExitStack() as stack:
        urls: dict[str, sa.URL] = {}

        def url_of(kind: str) -> sa.URL:
            if kind not in urls:
                urls[kind] = stack.enter_context(getattr(servers, kind)())
            return urls[kind]

        yield url_of


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which database; a missing MariaDB is said loudly in the summary."""
    if request.param == "mariadb" and not servers.mariadb_is_here():
        pytest.skip("MARIADB IS NOT INSTALLED: install the package mariadb-server")
    return str(request.param)


@pytest.fixture
def url(kind: str, running: Callable[[str], sa.URL], tmp_path: Path) -> sa.URL:
    """A database of this kind."""
    if kind == "sqlite":
        return sa.URL.create("sqlite", database=str(tmp_path / "data.db"))
    return running(kind)


@pytest.fixture
def engine(url: sa.URL) -> Iterator[sa.Engine]:
    """Empty tables, and nothing else in the database."""
    engine = sa.create_engine(url)
    servers.empty(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[bloomstore.Store]:
    """An empty store; it must be sound at the end."""
    with bloomstore.open(tmp_path / "filters") as store:
        yield store
        assert [str(problem) for problem in store.check()] == []


@pytest.fixture
def sessions(engine: sa.Engine) -> sessionmaker[GuardedSession]:
    """Makes guarded sessions."""
    return sessionmaker(engine, class_=GuardedSession)


@pytest.fixture
def plugin(
    store: bloomstore.Store, engine: sa.Engine, sessions: sessionmaker[GuardedSession]
) -> Iterator[BloomPlugin]:
    """A plugin that listens and whose guards are valid."""
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    yield plugin
    plugin.unlisten()


class Sent:
    """The statements that an engine has sent."""

    def __init__(self, engine: sa.Engine) -> None:
        self.statements: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", self._hear)

    def _hear(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.statements.append(statement)

    def __call__(self) -> int:
        """How many since the last call."""
        count = len(self.statements)
        self.statements.clear()
        return count


@pytest.fixture
def sent(engine: sa.Engine) -> Sent:
    """Counts statements."""
    return Sent(engine)


def every_row_is_known(plugin: BloomPlugin, engine: sa.Engine) -> int:
    """Asserts that no guard says ABSENT for a committed row; returns how many were asked for."""
    asked = 0
    with engine.connect() as connection:
        for guard in plugin.guards.values():
            columns = guard.declared.columns
            rows = [row for row in connection.execute(sa.select(*columns)) if None not in row]
            values = [row[0] if len(columns) == 1 else tuple(row) for row in rows]
            column = columns if len(columns) > 1 else columns[0]
            for value in values[:30]:
                assert plugin.probe(column, value) != Answer.ABSENT, (guard.name, value)
            absent, _ = plugin.partition(column, values)  # many of them one by one take long
            assert absent == [], guard.name
            asked += len(values)
    return asked
