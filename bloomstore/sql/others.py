"""Who else listens to a session, a connection or a pool, and what they may do unheard.

A guard that answers sends nothing: listeners that would have changed the question, or the settings
of the connection that it is asked on, are not heard. Where there are such, the question is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.events import ConnectionEvents
from sqlalchemy.pool import NullPool


def may_set(connection: Connection) -> bool:
    """Whether others are told when the connection is lent, begins or returns: they may use it."""
    engine, pool = connection.engine, connection.engine.pool.dispatch
    if are_foreign(pool.checkout) or are_foreign(pool.checkin) or are_foreign(pool.reset):
        return True
    if not (connection._has_events or engine._has_events):
        return False
    heard = connection.dispatch
    return bool(heard.engine_connect or heard.savepoint or _are_told_of_begin(connection))


def may_set_next(engine: Engine) -> bool:
    """The same of the connection that the pool lends next.

    A pool that keeps nothing makes a new connection each time, and whoever is told of it may make
    another one of it for each tenant.
    """
    pool = engine.pool
    heard = pool.dispatch
    if are_foreign(heard.checkout) or are_foreign(heard.checkin) or are_foreign(heard.reset):
        return True
    if isinstance(pool, NullPool) and (
        any(map(_is_of_application, heard.connect)) or bool(engine.dialect.dispatch.do_connect)
    ):
        return True
    return engine._has_events and bool(engine.dispatch.engine_connect or _are_told_of_begin(engine))


def _are_told_of_begin(bind: Connection | Engine) -> bool:
    """Not on SQLite: its driver needs a listener that sends BEGIN, and a file is its one place."""
    return bind.dialect.name != "sqlite" and bool(bind.dispatch.begin)


def may_rewrite(bind: Connection | Engine) -> bool:
    """Whether others may replace a statement, or its values, on their way to the driver.

    Those of before_execute and before_cursor_execute that return nothing cannot: SQLAlchemy wraps
    them.
    """
    engine = bind.engine
    if engine.dialect._has_events and are_foreign(engine.dialect.dispatch.do_execute):
        return True
    if not (bind._has_events or engine._has_events):
        return False
    heard = bind.dispatch
    return not all(map(_is_wrapped, heard.before_execute)) or not all(
        map(_is_wrapped, heard.before_cursor_execute)
    )


def _is_wrapped(listener: Any) -> bool:
    return bool(listener.__module__ == ConnectionEvents.__module__)


def are_foreign(listeners: Iterable[Any]) -> bool:
    """Whether some of the listeners are not ours."""
    return bool(listeners) and not all(map(is_own, listeners))


def is_own(listener: Any) -> bool:
    """Whether a listener is one of this package."""
    return str(getattr(listener, "__module__", "")).startswith("bloomstore.")


def _is_of_application(listener: Any) -> bool:
    """Neither ours nor one that SQLAlchemy itself has for each new connection."""
    module = str(getattr(listener, "__module__", ""))
    return not module.startswith(("bloomstore.", "sqlalchemy."))
