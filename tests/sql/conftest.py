"""One world per test: a database with empty tables, a store, a plugin that listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.sql import BloomPlugin, GuardedSession
from tests.sql.support import servers
from tests.sql.support.checks import Sent
from tests.sql.support.models import Base

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


@pytest.fixture
def sent(engine: sa.Engine) -> Sent:
    """Counts statements."""
    return Sent(engine)


@pytest.fixture
def checker(engine: sa.Engine, url: sa.URL, store: bloomstore.Store, tmp_path: Path) -> BloomPlugin:
    """A plugin of this process, built, on a database that several processes can use."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        sa.event.listen(
            engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 20000")
        )
        engine.dispose()
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    return plugin
