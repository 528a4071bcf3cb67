"""Databases by URL, for commands; every error is one line and names the kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

from bloomstore.errors import DatabaseError
from bloomstore.sql.databases import KINDS, database_of, is_known


def engine_of(url: str, *, may_be_new: bool = False) -> Engine:
    """An engine; `may_be_new`: SQLite may make the file. Raises DatabaseError."""
    with plainly(url):
        engine = create_engine(url)
    if may_be_new or not is_known(engine.dialect):
        return engine
    if why := database_of(engine.dialect).why_missing(engine.url):
        raise DatabaseError(f"{url}: {why}")
    return engine


@contextmanager
def reached(url: str, *, may_be_new: bool = False) -> Iterator[Engine]:
    """An engine of a kind that guards know. Raises DatabaseError for whatever goes wrong inside."""
    with plainly(url):
        engine = engine_of(url, may_be_new=may_be_new)
        if not is_known(engine.dialect):
            raise DatabaseError(f"no guard knows {engine.dialect.name}: {KINDS}")
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def plainly(url: str) -> Iterator[None]:
    """Says what SQLAlchemy or the driver said; the URL may have a password and is not in it."""
    try:
        yield
    except NoSuchModuleError:
        raise DatabaseError(
            f"{url.split('://', 1)[0]}://...: SQLAlchemy has no such kind of database; expected"
            " sqlite, postgresql+psycopg or mysql+pymysql, or another driver of these"
        ) from None
    except (SQLAlchemyError, ImportError) as error:
        what = getattr(error, "orig", None) or error
        raise DatabaseError(f"{url.split('://', 1)[0]}: {what}") from error
