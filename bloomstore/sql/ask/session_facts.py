"""Facts about a session: its engine, and its open transaction, cached until that ends.

Out: TransactionFacts, so that repeated lookups need not find out again what stays as it is while a
transaction is open.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from sqlalchemy import Select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from bloomstore.sql.attached import BYPASS, facts_of, is_bypassed
from bloomstore.sql.sqlalchemy_private import has_opened


def bind_of(session: Any, mapper: Any, statement: Any = None) -> Any:
    """The engine or connection that the session would ask. Raises UnboundExecutionError."""
    if statement is None and not has_own_binding(session):
        return session.get_bind(mapper)
    clause: Any = Select(mapper) if statement is None else statement
    return session.get_bind(mapper, clause=clause)


def has_own_binding(session: Any) -> bool:
    """Whether the application has replaced get_bind, which may look at the statement."""
    return getattr(session.get_bind, "__func__", None) is not Session.get_bind


def shares_connections(engine: Engine) -> bool:
    """Whether the pool lends one connection to several at a time, as that of `sqlite://` does."""
    return isinstance(engine.pool, (StaticPool, SingletonThreadPool))


def has_connections(pool: Pool) -> bool:
    """Whether the pool may lend a connection that was opened before the plugin listened."""
    if isinstance(pool, NullPool):
        return False
    if isinstance(pool, QueuePool):
        return pool.checkedin() + pool.checkedout() > 0
    if isinstance(pool, SingletonThreadPool):
        return has_opened(pool)
    return not isinstance(pool, StaticPool) or "connection" in vars(pool)


@contextlib.contextmanager
def bypassed(session: Session) -> Iterator[None]:
    """Inside, no guard answers for this session; blocks may be nested."""
    is_outermost = not is_bypassed(session)
    session.info[BYPASS] = True
    if (facts := facts_of(session)) is not None:
        facts.permits.clear()
    try:
        yield
    finally:
        if is_outermost:
            session.info.pop(BYPASS, None)


class Listening(Protocol):
    """The part of Eligibility that says whether the plugin listens."""

    listening: object | None


class TransactionFacts:
    """Facts about a session's open transaction: made when it begins, dropped when it ends."""

    __slots__ = (
        "connection", "info", "is_undisturbed", "lent", "listening", "may_skip", "options",
        "owner", "permits", "reference", "transaction", "trust",
    )  # fmt: skip

    def __init__(self, owner: Listening, connection: Connection) -> None:
        self.owner = owner  # the plugin whose session events made these facts
        self.connection = connection
        self.transaction: Any = connection.get_transaction()
        self.listening = owner.listening
        self.lent = connection.connection
        self.reference = weakref.ref(self.lent)
        self.info = self.lent.info  # reading it from the connection is slow
        # The trust of Eligibility when the database was last compared for this transaction.
        self.trust: object | None = None
        # Whether engine and isolation level allow answers. None until the first lookup: most
        # transactions that only write have none.
        self.may_skip: bool | None = None
        self.options: Any = None  # of the connection, when may_skip was computed
        # The connection's settings were right, and no other listener can have changed them since.
        self.is_undisturbed = False
        self.permits: dict[Any, Any] = {}  # by mapped class, see permits.py

    def hold(self) -> bool:
        """Whether the plugin has listened all the time, and the connection is still the same."""
        return (
            self.lent.dbapi_connection is not None
            and not self.lent.is_detached  # a detached connection has another info
            and self.listening is not None
            and self.listening is self.owner.listening
            and self.transaction.is_active
        )
