"""Who reads for a build: a reader that sees less than everybody else is refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import bloomstore
from bloomstore import Scalable
from bloomstore.rebuild import SourceError, rebuild
from bloomstore.sql import Answer, BloomPlugin, BuildError
from bloomstore.sql.build.table_source import SelectSource, TableSource, reflect
from tests.sql.support import servers
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.kinds import only_mariadb, only_postgresql
from tests.sql.support.models import Base, User


@pytest.fixture
def tenant(url: sa.URL, engine: sa.Engine) -> Iterator[sa.Engine]:
    """The engine of a role that must not see the rows of others: every other user of a hundred."""
    with engine.begin() as connection:
        connection.execute(
            sa.insert(User), [{"id": n, "email": f"{n}@x", "age": n % 2} for n in range(1, 101)]
        )
        connection.exec_driver_sql("DROP ROLE IF EXISTS tenant")
        for statement in (
            "CREATE ROLE tenant LOGIN",
            "GRANT ALL ON SCHEMA public TO tenant",
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO tenant",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO tenant",
            "ALTER TABLE users ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY own ON users USING (age = 0)",
        ):
            connection.exec_driver_sql(statement)
    found = sa.create_engine(url.set(username="tenant"))
    yield found
    found.dispose()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY tenant")
        connection.exec_driver_sql("DROP ROLE tenant")


@only_postgresql
def test_rows_hidden_by_a_policy_are_never_absent(
    store: bloomstore.Store, engine: sa.Engine, tenant: sa.Engine
) -> None:
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(tenant)
    with pytest.raises(BuildError, match=r"row-level security.*BYPASSRLS"):
        plugin.build(tenant, User.id)
    assert plugin.probe(User.id, 1) == Answer.UNKNOWN
    plugin.unlisten()
    owner = BloomPlugin(store, Base.metadata)
    owner.listen(engine, tenant)
    owner.build(engine)
    assert owner.probe(User.id, 1) is Answer.MAYBE
    assert owner.probe(User.id, 101) is Answer.ABSENT  # the tenant may ask: policies only narrow
    with pytest.raises(SourceError, match=r"row-level security.*BYPASSRLS"):
        owner.rebuild(tenant, User.id)
    with pytest.raises(BuildError, match=r"row-level security.*BYPASSRLS"):
        owner.build(tenant, User.id, force=True)
    assert every_row_is_known(owner, engine) > 0
    assert owner.probe(User.id, 1) is not Answer.ABSENT
    owner.unlisten()


@only_postgresql
def test_a_policy_that_binds_the_owner_too_is_refused(
    store: bloomstore.Store, engine: sa.Engine, tenant: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE users FORCE ROW LEVEL SECURITY")
        connection.exec_driver_sql("ALTER TABLE users OWNER TO tenant")
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(tenant)
    with pytest.raises(BuildError, match="FORCE"):
        plugin.build(tenant, User.email)
    plugin.unlisten()


@only_postgresql
def test_an_async_reader_is_refused_as_well(
    store: bloomstore.Store, engine: sa.Engine, tenant: sa.Engine
) -> None:
    async def main() -> None:
        other = create_async_engine(tenant.url.set(drivername="postgresql+asyncpg"))
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(other)
        with pytest.raises(BuildError, match=r"row-level security.*BYPASSRLS"):
            await plugin.build_async(other, User.id)
        plugin.unlisten()
        await other.dispose()

    asyncio.run(main())


@only_postgresql
def test_a_plain_filter_is_not_filled_through_a_policy_or_a_view_behind_one(
    store: bloomstore.Store, engine: sa.Engine, tenant: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE VIEW seen WITH (security_invoker) AS TABLE users")
        connection.exec_driver_sql("GRANT SELECT ON seen TO tenant")
    store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
    rebuild(store, "plain", TableSource(engine, reflect(engine, "users"), ["email"]))
    for source in (
        TableSource(tenant, reflect(tenant, "users"), ["email"]),
        SelectSource(tenant, "SELECT email FROM users"),
        SelectSource(tenant, "SELECT email FROM seen"),
    ):
        with pytest.raises(SourceError, match=r"row-level security"):
            rebuild(store, "plain", source)
    assert all(f"{n}@x" in store["plain"] for n in range(1, 101))


@pytest.mark.parametrize("which", [0, 1])
def test_a_build_does_not_read_a_temporary_table_in_front_of_the_real_one(
    store: bloomstore.Store, url: sa.URL, which: int
) -> None:
    engine = sa.create_engine(url, pool_size=2, max_overflow=0)
    servers.empty(engine)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="real@x"))
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    both = [engine.connect(), engine.connect()]
    raw: Any = both[which].connection.dbapi_connection  # a cursor that nobody sees
    raw.cursor().execute("CREATE TEMPORARY TABLE users (id int primary key, email varchar(60))")
    raw.commit()
    for connection in both:
        connection.close()
    with contextlib.suppress(BuildError):  # one of the two is found
        plugin.build(engine, User.id)
    assert plugin.probe(User.id, 1) is not Answer.ABSENT
    engine.dispose()
    plugin.build(engine)
    assert plugin.probe(User.id, 1) is Answer.MAYBE
    plugin.unlisten()
    engine.dispose()


@pytest.mark.skipif("BLOOMSTORE_TEST_PG_URL" in os.environ, reason="a server of its own is needed")
def test_a_standby_is_no_source(store: bloomstore.Store) -> None:
    with servers.postgresql() as url:
        primary = sa.create_engine(url)
        Base.metadata.create_all(primary)
        with primary.begin() as connection:
            connection.execute(sa.insert(User).values(id=1, email="old@x"))
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(primary)
        plugin.build(primary)
        plain = store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
        plain.add("old@x")
        with servers.standby_of(url) as behind:
            standby = sa.create_engine(behind)
            with standby.connect() as connection:
                connection.execute(sa.text("SELECT pg_wal_replay_pause()"))
            with primary.begin() as connection:
                connection.execute(sa.insert(User).values(id=2, email="new@x"))
            plain.add("new@x")
            with pytest.raises(SourceError, match="standby"):
                rebuild(store, "plain", TableSource(standby, reflect(standby, "users"), ["email"]))
            reader = BloomPlugin(store, Base.metadata)
            reader.listen(standby)
            with pytest.raises(BuildError, match="standby"):
                reader.build(standby, force=True)
            with pytest.raises(SourceError, match="standby"):
                reader.rebuild(standby)
            reader.unlisten()
            with standby.connect() as connection:
                connection.execute(sa.text("SELECT pg_wal_replay_resume()"))
            assert "new@x" in plain
            assert plugin.probe(User.id, 2) is Answer.MAYBE  # the good filter is still there
            assert plugin.probe(User.id, 3) is Answer.ABSENT
            plugin.unlisten()
            standby.dispose()
        primary.dispose()


@only_mariadb
def test_a_read_only_server_is_no_source(store: bloomstore.Store, engine: sa.Engine) -> None:
    plain = store.create("plain", Scalable(target_error=1e-3, initial_capacity=100))
    plain.add("new@x")
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(SourceError, match="read-only"):
                rebuild(store, "plain", TableSource(engine, reflect(engine, "users"), ["email"]))
            with pytest.raises(BuildError, match="read-only"):
                plugin.build(engine)
        finally:
            connection.exec_driver_sql("SET GLOBAL read_only = 0")
    plugin.build(engine)
    plugin.unlisten()
