"""What an asker knows of one session, from the beginning of its transaction to the end."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from bloomstore.sql.guards.guard import ActiveGuard

if TYPE_CHECKING:
    from bloomstore.sql.ask.asker import Asker

STANDING = "bloomstore/standing"  # in session.info


# Engines by class or table: session.binds, or session._Session__binds in SQLAlchemy 2.0.
HAS_BINDS = hasattr(Session(), "binds")


def bind_of(session: Any, mapper: Any, statement: Any = None) -> Any:
    """The engine or connection that the session would ask. Raises UnboundExecutionError."""
    if statement is None and not _has_own_ways(session):
        return session.get_bind(mapper)
    clause: Any = Select(mapper) if statement is None else statement
    return session.get_bind(mapper, clause=clause)


def _has_own_ways(session: Any) -> bool:
    return getattr(session.get_bind, "__func__", None) is not Session.get_bind


def shares_connections(engine: Engine) -> bool:
    """Whether the pool lends one connection to several at a time, as that of `sqlite://` does."""
    return isinstance(engine.pool, (StaticPool, SingletonThreadPool))


def has_connections(pool: Pool) -> bool:
    """Whether connections were made that nobody was told of, and that may be lent again."""
    if isinstance(pool, NullPool):
        return False
    if isinstance(pool, QueuePool):
        return pool.checkedin() + pool.checkedout() > 0
    if isinstance(pool, SingletonThreadPool):
        return bool(pool._all_conns)
    return not isinstance(pool, StaticPool) or "connection" in vars(pool)


class QuickGet:
    """What get() of one class needs for a key that may be there."""

    __slots__ = ("guard",)

    def __init__(self, guard: ActiveGuard) -> None:
        self.guard = guard


class Known(QuickGet):
    """The same for an absent key, once it is known that the guard may answer."""

    __slots__ = ("bind", "identity_class", "is_bound", "is_number", "least", "mapper", "most")

    def __init__(self, session: Session, quick: QuickGet, mapper: Any) -> None:
        super().__init__(quick.guard)
        self.mapper = mapper
        self.identity_class = mapper._identity_class
        self.bind = bind_of(session, mapper)
        # Then get_bind() returns session.bind, and need not be called while there is no other.
        self.is_bound = not _has_own_ways(session) and session.bind is self.bind
        # What the column can hold: two comparisons take a third of the time of `in`.
        room = quick.guard.room
        self.is_number = isinstance(room, range)
        self.least, self.most = (room[0], room[-1]) if isinstance(room, range) else (0, 0)


class Standing:
    """What is known of one session: filled when its transaction begins, dropped when it ends."""

    __slots__ = (
        "asker", "connection", "guards", "info", "is_undisturbed", "lent", "listening", "may_skip",
        "options", "reference", "transaction", "trust",
    )  # fmt: skip

    def __init__(self, asker: Asker, connection: Connection) -> None:
        self.asker = asker
        self.connection = connection
        self.transaction: Any = connection.get_transaction()
        self.listening = asker.listening
        self.lent = connection.connection
        self.reference = weakref.ref(self.lent)
        self.info = self.lent.info  # reading it from the connection is slow
        self.trust: object | None = None  # of the asker, when it last compared the database
        # As far as its engine and its isolation level go; None until somebody asks: most
        # transactions that only write never do.
        self.may_skip: bool | None = None
        self.options: Any = None  # of the connection, when that was found out
        # Its settings were as they must be, and nobody else listens who might change them.
        self.is_undisturbed = False
        self.guards: dict[Any, Known] = {}  # by mapped class

    def holds(self) -> bool:
        """Whether the plugin has listened all the time, and the connection is the same still."""
        return (
            self.lent.dbapi_connection is not None
            and not self.lent.is_detached  # then its info is another one
            and self.listening is not None
            and self.listening is self.asker.listening
        )
