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
    with database_errors(url):
        engine = create_engine(url)
    if may_be_new or not is_known(engine.dialect):
        return engine
    if why := database_of(engine.dialect).why_missing(engine.url):
        raise DatabaseError(f"{url}: {why}")
    return engine


@contextmanager
def connected(url: str, *, may_be_new: bool = False) -> Iterator[Engine]:
    """An engine of a kind that guards know. Raises DatabaseError for whatever goes wrong inside."""
    with database_errors(url):
        engine = engine_of(url, may_be_new=may_be_new)
        if not is_known(engine.dialect):
            raise DatabaseError(f"{engine.dialect.name} is not supported; expected one of {KINDS}")
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Turns errors of SQLAlchemy and the driver into DatabaseError.

    The message does not have the URL, which may have a password.
    """
    try:
        yield
    except NoSuchModuleError:
        raise DatabaseError(
            f"{url.split('://', 1)[0]}://...: SQLAlchemy has no such kind of database; expected"
            " sqlite, postgresql+psycopg or mysql+pymysql, or another driver of these"
        ) from None
    except (SQLAlchemyError, ImportError) as error:
        cause = getattr(error, "orig", None) or error
        raise DatabaseError(f"{url.split('://', 1)[0]}: {cause}") from error
