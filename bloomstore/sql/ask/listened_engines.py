"""The engines that a plugin listens to: their writes are captured, their databases met by guards.

In: engines, sync or async. Guards meet a database on each new connection, before any other use of
it, and on one that is open already when the plugin begins to listen. Engines that differ only in
options share a dialect and a pool, and are listened to once.

Not here: session factories (session_factories.py), and how writes are captured (capture/).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from bloomstore.errors import SpecError
from bloomstore.sql.ask.eligibility import Eligibility
from bloomstore.sql.ask.session_facts import has_connections, shares_connections
from bloomstore.sql.attached import CONNECTING, note_sent, settings_change_of
from bloomstore.sql.capture.capture import Capture
from bloomstore.sql.databases import KINDS, is_known
from bloomstore.sql.guards.guard_set import Guards
from bloomstore.sql.listeners import OF_DIALECT, Listeners
from bloomstore.sql.schema.incarnation import ensure_incarnation

log = logging.getLogger("bloomstore.sql")


class ListenedEngines:
    """The engines of one plugin. `listeners.lock` protects the list."""

    def __init__(
        self, guards: Guards, capture: Capture, eligibility: Eligibility, listeners: Listeners
    ) -> None:
        self._guards = guards
        self._capture = capture
        self._eligibility = eligibility
        self._comparisons = eligibility.comparisons
        self._listeners = listeners
        self._engines: list[Engine] = []

    def __iter__(self) -> Iterator[Engine]:
        return iter(list(self._engines))

    def __contains__(self, engine: object) -> bool:
        return engine in self._engines

    def add(self, target: Engine | AsyncEngine) -> None:
        """Listens to an engine from now on. Opens no connection. Raises SpecError."""
        engine = target.sync_engine if isinstance(target, AsyncEngine) else target
        if not is_known(engine.dialect):
            raise SpecError(f"no guard knows how {engine.dialect.name} compares: {KINDS}")
        with self._listeners.lock:
            if engine in self._engines:
                return
            if not self._capture.listens_to(engine):
                self._begin(engine)
            self._engines.append(engine)
            self._eligibility.listens(is_on=True)
        if target is engine:
            self.look_at(engine)

    def clear(self) -> None:
        """Forgets all engines; the listeners were taken away before."""
        self._engines.clear()

    def _begin(self, engine: Engine) -> None:
        def connected(raw: Any, record: Any) -> None:
            self._guards.meet(engine.dialect, raw)
            self._comparisons.met(engine)
            if [*engine.pool.dispatch.connect][-1] is not connected:
                record.info[CONNECTING] = True  # later listeners may change its settings
                with self._listeners.lock:
                    if self._engines:
                        self._listeners.add(engine, "checkout", lent)

        def lent(raw: Any, record: Any, _: Any) -> None:
            if record.info.pop(CONNECTING, False):
                self._guards.meet(engine.dialect, raw)

        self._capture.listen(engine)
        self._listeners.undo_later(lambda: self._capture.unlisten(engine))
        self._listeners.add(engine, "connect", connected)
        if self._eligibility.policy == "auto":
            for name in OF_DIALECT:
                self._listeners.add(engine, name, lambda *rest: _note_sent(rest[-1]))

    def look_at_all(self) -> None:
        """Lets new guards meet the databases of sync engines, where connections are open."""
        for engine in self:
            if not engine.dialect.is_async:
                self.look_at(engine)

    def look_at(self, engine: Engine) -> None:
        """Lets guards meet the database if connections are open; new ones are met anyway."""
        if not has_connections(engine.pool):
            return
        try:
            with engine.connect() as connection:
                is_changed = settings_change_of(connection) is not None
                if not is_changed or self._guards.settings.hold(connection):
                    self._guards.meet(engine.dialect, connection.connection.dbapi_connection)
                    self._comparisons.met(engine)
        except SQLAlchemyError as error:
            log.warning("guards could not be compared with their database yet: %s", error)

    def meet_again(self, engine: Engine) -> None:
        """Lets guards meet the database as it is now, by every engine that is sync or async alike.

        The database gets its incarnation on a connection whose settings are unchanged.
        """
        settings = self._guards.settings
        # A shared connection may be the whole database, as with SQLite in memory.
        if settings.have_changed_on(engine) and not shares_connections(engine):
            engine.dispose()  # connections whose settings were changed do not come back
        ensure_incarnation(engine)
        for each in self:
            if each.dialect.is_async is engine.dialect.is_async:
                with each.connect() as connection:
                    if not settings.have_changed_on(each) or settings.hold(connection):
                        self._guards.meet(each.dialect, connection.connection.dbapi_connection)
                        self._comparisons.met(each)


def _note_sent(context: Any) -> None:
    with contextlib.suppress(NotImplementedError):  # SQLAlchemy looks at its first connection
        note_sent(context.root_connection)
