"""Async engines: the same guards, with aiosqlite, asyncpg and psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, Guarded, GuardedSession
from tests.sql.support.checks import Sent
from tests.sql.support.models import Base, User


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg", "postgresql+psycopg"])
def test_the_whole_life_under_asyncio(
    driver: str, running: Callable[[str], sa.URL], store: bloomstore.Store, tmp_path: Path
) -> None:
    kind = driver.split("+")[0]
    url = (
        sa.URL.create(driver, database=str(tmp_path / "a.db"))
        if kind == "sqlite"
        else running(kind).set(drivername=driver)
    )
    asyncio.run(live(url, store))


async def live(url: sa.URL, store: bloomstore.Store) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    sent = Sent(engine.sync_engine)
    sessions: Any = async_sessionmaker(
        engine, class_=AsyncSession, sync_session_class=GuardedSession
    )
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, sessions)
    async with sessions.begin() as session:
        session.add(User(email="a@x"))
    assert plugin.probe(User.email, "b@x") == Answer.UNKNOWN
    await plugin.build_async(engine)
    assert plugin.probe(User.email, "a@x") is Answer.MAYBE
    async with sessions.begin() as session:
        session.add_all([User(email=f"u{n}@x") for n in range(5)])
    async with sessions() as session:
        sent()
        assert await session.get(User, 4711) is None
        absent = select(User).where(User.email == "zz@x").options(Guarded())
        assert (await session.scalars(absent)).all() == []
        assert sent() == 0
        present = select(User).where(User.email == "u3@x").options(Guarded())
        assert (await session.scalars(present)).one().email == "u3@x"
        await session.rollback()
    await asyncio.gather(*(write(sessions, f"together{n}@x") for n in range(10)))
    assert {plugin.probe(User.email, f"together{n}@x").name for n in range(10)} == {"MAYBE"}
    await rebuild_anew(plugin, engine, sessions)
    plugin.unlisten()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
    await engine.dispose()


async def rebuild_anew(plugin: BloomPlugin, engine: AsyncEngine, sessions: Any) -> None:
    """Deleted rows are shed, and what others write to the same loop meanwhile is kept."""
    async with sessions.begin() as session:
        await session.execute(sa.delete(User).where(User.email == "u3@x"))
    assert plugin.probe(User.email, "u3@x") is Answer.MAYBE
    done, *_ = await asyncio.gather(
        plugin.rebuild_async(engine, User.email),
        *(write(sessions, f"meanwhile{n}@x") for n in range(10)),
    )
    assert done is not None
    assert [(each.name, each.still) for each in done] == [("users.email", "")]
    assert plugin.probe(User.email, "u3@x") is Answer.ABSENT
    kept = ["a@x", "u4@x", *(f"meanwhile{n}@x" for n in range(10))]
    assert plugin.partition(User.email, kept)[1] == kept
    for wrong in (engine, engine.sync_engine):
        with pytest.raises(SpecError, match="`rebuild_async` is for async ones"):
            plugin.rebuild(wrong)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="`rebuild` is for others"):
        await plugin.rebuild_async(engine.sync_engine)  # type: ignore[arg-type]


async def write(sessions: Any, email: str) -> None:
    async with sessions.begin() as session:
        session.add(User(email=email))
        await session.flush()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("driver", ["aiosqlite", "asyncpg"])
def test_a_rebuild_that_is_cut_off_gives_its_connection_back(
    driver: str, tmp_path: Path, store: bloomstore.Store, running: Callable[[str], sa.URL]
) -> None:
    if driver == "asyncpg":
        url = running("postgresql").set(drivername="postgresql+asyncpg")
    else:
        url = sa.make_url(f"sqlite+aiosqlite:///{tmp_path}/data.db")

    def stop(name: str, rows: int) -> None:
        if rows:
            raise RuntimeError("cut off")

    async def main() -> None:
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(sa.insert(User), [{"id": n} for n in range(1, 50)])
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine)
        await plugin.build_async(engine)
        kept = None
        try:
            await plugin.rebuild_async(engine, User.id, progress=stop)
        except RuntimeError as error:  # its traceback keeps every frame alive
            kept = error
        assert kept is not None
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        await plugin.rebuild_async(engine, User.id)
        plugin.unlisten()
        await engine.dispose()

    asyncio.run(main())
