"""Reaching a database by its URL, for commands: errors are one line that names the kind of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError

from bloomstore.errors import BloomStoreError
from bloomstore.sql.databases import BY_DIALECT


class DatabaseError(BloomStoreError):
    """A database could not be reached or did not do what it was asked."""


@contextmanager
def reached(url: str) -> Iterator[Engine]:
    """An engine of a kind that guards know. Raises DatabaseError for whatever goes wrong inside."""
    with plainly(url):
        engine = create_engine(url)
        if engine.dialect.name not in BY_DIALECT:
            raise DatabaseError(f"no guard knows {engine.dialect.name}: {', '.join(BY_DIALECT)}")
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def plainly(url: str) -> Iterator[None]:
    """Says what SQLAlchemy or the driver said; the URL may have a password and is not in it."""
    try:
        yield
    except (SQLAlchemyError, ImportError) as error:
        what = getattr(error, "orig", None) or error
        raise DatabaseError(f"{url.split('://', 1)[0]}: {what}") from error
