"""Permits: why repeated `get`s of one class may be answered without another full check.

A permit is made after eligibility.py has allowed a lookup, and holds the facts behind that
decision. `allows` compares these facts with the present: it checks again every condition that may
have changed. If a permit does not allow a lookup, eligibility.py decides.

    GetInTransaction        the session has a connection; hung on its TransactionFacts
    GetBeforeConnection     the session has none yet; one for all sessions of a class

An absent `get` takes 0.5 us with the first and 1.5 with the second; the full check takes 7.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from bloomstore.sql.ask.session_facts import (
    TransactionFacts,
    bind_of,
    has_own_binding,
    shares_connections,
)
from bloomstore.sql.attached import BYPASS, CHANGED
from bloomstore.sql.guards.foreign_listeners import is_own
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import (
    HAS_BINDS,
    binds_of,
    functions_of,
    has_events,
    identity_class,
    is_as_before,
    is_clean_and_lacks,
    is_disposed,
    is_idle,
    is_only_listener,
    shared_listeners,
)


class GetPermit:
    """The guard of the primary key of one mapped class, and which keys the column can hold."""

    __slots__ = ("guard", "identity_class", "is_number", "least", "mapper", "most")

    def __init__(self, guard: ActiveGuard, mapper: Any) -> None:
        self.guard = guard
        self.mapper = mapper
        self.identity_class = identity_class(mapper)
        # Two comparisons take a third of the time of `in`.
        room = guard.room
        self.is_number = isinstance(room, range)
        self.least, self.most = (room[0], room[-1]) if isinstance(room, range) else (0, 0)


class GetInTransaction(GetPermit):
    """For a session that has a connection."""

    __slots__ = ("_pending_of", "_written", "bind", "is_bound", "source")

    def __init__(self, session: Session, guard: ActiveGuard, mapper: Any, source: Any) -> None:
        super().__init__(guard, mapper)
        self.source = source  # Eligibility
        self._written = source.written
        self._pending_of = source.pending_of_connection
        self.bind = bind_of(session, mapper)
        # Then get_bind() returns session.bind, and need not be called while there is no other.
        self.is_bound = not has_own_binding(session) and session.bind is self.bind

    def allows(self, session: Any, ident: Any, facts: TransactionFacts | None) -> bool:
        """Whether `get` may return None for a key that the filter lacks.

        Attributes of the session instead of its methods: a third of a microsecond instead of one.
        """
        if facts is None or facts.trust is not self.source.trust:
            return False
        if self._written and facts.reference in self._written:
            pending = self._pending_of(facts.connection)
            guard = self.guard
            if pending and (guard in pending.unknown or ident in pending.keys.get(guard, ())):
                return False
        return (
            (self.least <= ident <= self.most if self.is_number else ident in self.guard.room)
            and is_as_before(
                session,
                self.identity_class,
                ident,
                self.mapper,
                facts.lent,
                facts.connection,
                facts.options,
            )
            and facts.transaction.is_active
            and CHANGED not in facts.info
            and (
                session.bind is self.bind
                if self.is_bound and not (session.binds if HAS_BINDS else binds_of(session))
                else bind_of(session, self.mapper) is self.bind
            )
        )


class GetBeforeConnection(GetPermit):
    """For sessions that have no connection yet, by their class."""

    __slots__ = ("_known", "source")

    def __init__(self, guard: ActiveGuard, mapper: Any, source: Any) -> None:
        super().__init__(guard, mapper)
        self.source = source  # Eligibility
        self._known: dict[type, _Idle] = {}

    def learn(self, session: Session) -> None:
        """Remembers that lookups of this session, and of sessions like it, may be answered."""
        idle = _idle(session, self.mapper, self.source)
        if idle is None:
            self._known.pop(type(session), None)
        else:
            self._known[type(session)] = idle

    def allows(self, session: Any, ident: Any, facts: TransactionFacts | None) -> bool:
        """Whether `get` may return None for a key that the filter lacks."""
        idle = self._known.get(type(session))
        return (
            idle is not None
            and facts is None
            and is_idle(session)
            and idle.is_like(session)
            and idle.holds()
            and idle.listening is self.source.listening
            and not self.source.settings.have_changed
            and BYPASS not in session.info
            and is_clean_and_lacks(session, self.identity_class, ident)
            and (self.least <= ident <= self.most if self.is_number else ident in self.guard.room)
            and not is_disposed(self.mapper)
        )


class _Idle:
    """The facts behind a permit for sessions of one class that have no connection."""

    __slots__ = (
        "after_begin",
        "after_transaction_create",
        "do_orm_execute",
        "ends",
        "engine",
        "listener",
        "listening",
        "options",
        "pool",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, events: tuple[Any, Any, Any], listener: Any, source: Any
    ) -> None:
        self.engine = engine
        self.pool = engine.pool
        self.options = engine.get_execution_options()
        self.after_begin, self.after_transaction_create, self.do_orm_execute = events
        self.listener = listener  # the only listener of after_begin; the other two events have none
        self.listening = source.listening
        # The moment of the monotonic clock at which the database must be compared again.
        self.ends = source.comparisons.ends(engine)

    def is_like(self, session: Any) -> bool:
        """Whether the session would send its lookup the same way, with the same listeners."""
        return (
            session.bind is self.engine
            and not binds_of(session)
            and not has_own_binding(session)
            and not getattr(session, "execution_options", None)  # 2.0 has none
            and is_only_listener(
                session,
                self.listener,
                self.after_begin,
                self.after_transaction_create,
                self.do_orm_execute,
            )
        )

    def holds(self) -> bool:
        """Whether the engine is as it was, without listeners, and was compared lately."""
        engine = self.engine
        heard = engine.pool.dispatch
        return (
            engine.pool is self.pool
            and engine.get_execution_options() is self.options
            and not has_events(engine)
            and not has_events(engine.dialect)
            and not (heard.checkout or heard.checkin or heard.reset)
            and time.monotonic() < self.ends
        )


def _idle(session: Any, mapper: Any, source: Any) -> _Idle | None:
    """None where a lookup before the connection needs the full check each time."""
    if source.listening is None or not is_idle(session) or has_own_binding(session):
        return None
    engine = bind_of(session, mapper)
    if not isinstance(engine, Engine) or isinstance(engine.pool, NullPool):
        return None  # a pool that keeps nothing may connect elsewhere each time
    if shares_connections(engine):
        return None  # other sessions may have written on the same connection
    after_begin, after_transaction_create, do_orm_execute = events = (
        shared_listeners(session, "after_begin"),
        shared_listeners(session, "after_transaction_create"),
        shared_listeners(session, "do_orm_execute"),
    )
    if after_begin is None or after_transaction_create is None or do_orm_execute is None:
        return None
    listeners = list(functions_of(after_begin))
    if len(listeners) != 1 or not is_own(listeners[0]):
        return None
    idle = _Idle(engine, events, listeners[0], source)
    # Another thread may have changed the engine's options since eligibility.py looked at them; what
    # changes from here on is noticed by `holds`.
    is_usable = source.is_usable(engine) and idle.is_like(session) and idle.holds()
    return idle if is_usable else None
