"""Checks, before answers, that an engine still leads to the database that the guards met.

A lookup that is not sent opens no connection, so a file that was replaced, or a database that was
recreated, would go unnoticed. A comparison holds for one pool and for some seconds. After that the
identity of the server and the tokens of the builds (schema/incarnation.py) are read again, on the
connection of the asking session, inside its transaction, or else on a connection that the pool can
lend without waiting. Without such a connection the database is unknown, and the lookup is sent.

A database that is restored in place is not noticed during these seconds.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from typing import Protocol

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import Pool, QueuePool
from sqlalchemy.util.concurrency import in_greenlet

from bloomstore.sql.ask.session_facts import shares_connections
from bloomstore.sql.guards.guard_set import Guards
from bloomstore.sql.sqlalchemy_private import is_exhausted

NOBODY = "its database was not compared recently, and no connection is free to compare it on"


class Comparisons:
    """When the database of each engine was compared with the guards of one plugin."""

    def __init__(self, guards: Guards, seconds: float) -> None:
        self.seconds = seconds
        self._guards = guards
        self._last: dict[int, tuple[Pool, float]] = {}  # by dialect: engines with options share it

    def met(self, engine: Engine) -> None:
        """The guards have just met the database of this engine."""
        self._last[id(engine.dialect)] = engine.pool, time.monotonic()

    def ends(self, engine: Engine) -> float:
        """The moment of the monotonic clock until which the last comparison holds."""
        pool, at = self._last.get(id(engine.dialect), (None, -math.inf))
        return at + self.seconds if pool is engine.pool else -math.inf

    def why_not(self, bind: Engine | Connection) -> str:
        """Why the database cannot be identified; "" if it was, even if guards then doubt it."""
        engine = bind.engine
        if self._holds(engine):
            return ""
        if isinstance(bind, Connection):
            return self._compare(engine, bind)
        connection = _at_once(engine)
        if connection is None:
            return NOBODY
        with connection:
            return self._compare(engine, connection)

    def _holds(self, engine: Engine) -> bool:
        pool, at = self._last.get(id(engine.dialect), (None, 0.0))
        if pool is not engine.pool:
            return False
        # A shared connection is mostly one to memory, and giving it back would end the
        # transactions of its other users.
        return time.monotonic() - at < self.seconds or shares_connections(engine)

    def _compare(self, engine: Engine, connection: Connection) -> str:
        try:
            lent = connection.connection  # guards meet a new connection when it is opened
            if not self._holds(engine) and lent.dbapi_connection is not None:
                is_inside = connection.in_transaction()
                raw = lent.dbapi_connection
                if why := self._guards.compare(engine.dialect, raw, is_inside=is_inside):
                    return why
                if not is_inside:
                    lent.rollback()
        except Exception as error:  # noqa: BLE001  any driver's; the next statement will raise it
            return f"its database could not be compared: {error}"
        self.met(engine)
        return ""


def _at_once(engine: Engine) -> Connection | None:
    """A connection that the pool has without waiting; None if it has none."""
    if engine.dialect.is_async and not in_greenlet():
        return None
    pool = engine.pool
    if isinstance(pool, QueuePool) and is_exhausted(pool):
        return None
    try:
        return engine.connect()
    except SQLAlchemyError:
        return None


class Trusting(Protocol):
    """The part of Eligibility that says what open transactions may trust."""

    trust: object


class Ticker:
    """Renews the trust every this many seconds, so that open transactions compare again.

    A thread, because looking at the clock would make an absent `get` 5 % slower. It ends when no
    transaction has wanted it between two ticks. There is no lock, which a fork might leave locked:
    a thread too many ends at its next tick.
    """

    def __init__(self, owner: Trusting, seconds: float) -> None:
        self._owner = weakref.ref(owner)
        self._seconds = seconds
        self._is_wanted = False
        self._thread: threading.Thread | None = None

    def want(self) -> bool:
        """Whether it ticks from now on; a forked process starts its own thread."""
        if not 0 < self._seconds < threading.TIMEOUT_MAX:
            return True  # no clock needed: compared in each transaction, or only once
        self._is_wanted = True
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="bloomstore clock", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds)
            owner = self._owner()
            is_wanted, self._is_wanted = self._is_wanted, False
            is_last = self._thread is not threading.current_thread() or not is_wanted
            if is_last and self._thread is threading.current_thread():
                self._thread = (
                    None  # set before the trust is renewed, so that readers of the new trust see it
                )
            if owner is not None:
                owner.trust = object()
            if is_last or owner is None:
                return
            del owner
