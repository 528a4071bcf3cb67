"""Foreign listeners of a session, a connection or a pool, and the changes they may make.

A lookup that a guard answers is not sent, so listeners that would have changed it, or the settings
of its connection, are not called. Where there are such listeners, the lookup is sent.

Most listeners of statements count or log them. A listener that leads each statement to its tenant
uses the connection or the cursor that it is given; a listener whose code never looks at them
cannot. So the code of a listener is read: if it uses these arguments for anything but `conn.info`,
it may change settings.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.events import ConnectionEvents
from sqlalchemy.pool import NullPool

from bloomstore.sql.databases import traits_of
from bloomstore.sql.sqlalchemy_private import connects_by_dialect, has_events

# Events of statements and transactions, whose listeners are given a connection.
_TOLD = """before_execute after_execute before_cursor_execute after_cursor_execute commit rollback
    rollback_savepoint release_savepoint set_connection_execution_options""".split()
# Arguments of these events that do not lead to the connection.
_MATTER = frozenset(
    """statement clauseelement multiparams params execution_options parameters executemany opts
    name""".split()
)
# A listener that got a connection in another way uses it by one of these names.
_USED = frozenset(
    """execute executemany exec_driver_sql scalar scalars callproc cursor connection connect
    dbapi_connection driver_connection raw_connection""".split()
)
# Indexes of the arguments that hold the values of a statement, which may be changed in place, and
# the names of methods that do so.
_VALUES = {"before_execute": (1, 2, 3), "before_cursor_execute": (3,)}
_CHANGES = frozenset("update pop popitem clear __setitem__ __delitem__ setattr".split())


def may_set(connection: Connection) -> bool:
    """Whether foreign listeners hear when the connection is lent, begins or returns, and use it."""
    engine, pool = connection.engine, connection.engine.pool.dispatch
    if are_foreign(pool.checkout) or are_foreign(pool.checkin) or are_foreign(pool.reset):
        return True
    if not (has_events(connection) or has_events(engine)):
        return False
    heard = connection.dispatch
    return bool(heard.engine_connect or heard.savepoint or _are_told_of_begin(connection)) or (
        traits_of(engine.dialect).can_redirect_names and may_use(connection, *_TOLD)
    )


def may_set_next(engine: Engine) -> bool:
    """The same for the connection that the pool lends next.

    A pool that keeps nothing makes a new connection each time, and a listener that is told of it
    may lead it to another tenant.
    """
    pool = engine.pool
    heard = pool.dispatch
    if are_foreign(heard.checkout) or are_foreign(heard.checkin) or are_foreign(heard.reset):
        return True
    if isinstance(pool, NullPool) and (
        any(map(_is_of_application, heard.connect))
        or bool(engine.dialect.dispatch.do_connect)
        or not connects_by_dialect(pool)
    ):
        return True
    return has_events(engine) and bool(engine.dispatch.engine_connect or _are_told_of_begin(engine))


def _are_told_of_begin(bind: Connection | Engine) -> bool:
    """Never on SQLite: its driver needs a listener that sends BEGIN, and one file has one place."""
    return traits_of(bind.dialect).can_redirect_names and bool(bind.dispatch.begin)


def may_rewrite(bind: Connection | Engine) -> bool:
    """Whether foreign listeners may replace a statement, or its values, before the driver gets it.

    Listeners of before_execute and before_cursor_execute that return nothing, which SQLAlchemy
    wraps, replace no statement. But they may change values in place.
    """
    engine = bind.engine
    if has_events(engine.dialect) and are_foreign(engine.dialect.dispatch.do_execute):
        return True
    if not (has_events(bind) or has_events(engine)):
        return False
    heard = bind.dispatch
    return (
        not all(map(_is_wrapped, heard.before_execute))
        or not all(map(_is_wrapped, heard.before_cursor_execute))
        or may_change_values(bind)
        or (
            traits_of(engine.dialect).can_redirect_names
            and may_use(bind, "before_execute", "before_cursor_execute")
        )
    )


def _is_wrapped(listener: Any) -> bool:
    return bool(listener.__module__ == ConnectionEvents.__module__)


def may_use(bind: Connection | Engine, *events: str) -> bool:
    """Whether foreign listeners of these events may use the connection that they are given."""
    heard = bind.dispatch
    return any(
        not is_own(listener) and _may_use_connection(listener)
        for event in events
        for listener in getattr(heard, event)
    )


def may_change_values(bind: Connection | Engine) -> bool:
    """Whether foreign listeners that hear of a statement may change its values in place."""
    heard = bind.dispatch
    return any(
        code is None or _changes(code, tuple(place + is_method for place in places))
        for event, places in _VALUES.items()
        for listener in getattr(heard, event)
        if not is_own(listener)
        for code, is_method in _read(listener)
    )


def _may_use_connection(listener: Any) -> bool:
    return any(code is None or _takes_connection(code) for code, _ in _read(listener))


def _read(listener: Any) -> list[tuple[CodeType | None, bool]]:
    """The code of a listener, and whether it is a method; None where it cannot be read."""
    is_method = isinstance(listener, MethodType)
    if is_method:
        listener = listener.__func__
    if not isinstance(listener, FunctionType):
        return [(None, False)]
    if str(listener.__module__).startswith("sqlalchemy."):  # it wraps those that return nothing
        inside = [cell.cell_contents for cell in listener.__closure__ or ()]
        found = [each for inner in inside if callable(inner) for each in _read(inner)]
        return found or [(None, False)]
    return [(listener.__code__, is_method)]


@functools.lru_cache(maxsize=1000)
def _changes(code: CodeType, places: tuple[int, ...]) -> bool:
    """Whether a function reads one of these arguments, and changes an object that may be it."""
    given = {name for place, name in enumerate(_arguments(code)) if place in places}
    given.update(_arguments(code)[code.co_argcount :])  # *arguments, and those that have names
    codes = list(_codes(code))
    return any(given.intersection(_looked_at(each)) for each in codes) and any(
        _CHANGES.intersection(each.co_names) or _stores(each) for each in codes
    )


def _stores(code: CodeType) -> bool:
    """Whether the code sets an item or attribute of anything but `self` and `variable.info`."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for place, step in enumerate(steps):
        if step.opname == "STORE_ATTR":
            of = steps[place - 1].argval  # from 3.13 on perhaps the last one of two
            if (of[-1] if isinstance(of, tuple) else of) != "self":
                return True
        elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            of = steps[place - 2]
            if (of.opname, of.argval) != ("LOAD_ATTR", "info"):
                return True
    return False


@functools.lru_cache(maxsize=1000)
def _takes_connection(code: CodeType) -> bool:
    """Whether a function reads an argument that leads to the connection, or uses another one."""
    given = {name for name in _arguments(code) if name not in _MATTER} - {"self", "cls"}
    return any(
        given.intersection(_looked_at(each)) or _USED.intersection(each.co_names)
        for each in _codes(code)
    )


def _arguments(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)
    count += bool(code.co_flags & 0x08)  # *arguments and **arguments
    return code.co_varnames[:count]


def _looked_at(code: CodeType) -> Iterator[str]:
    """The names of the variables whose values are read, except in `variable.info`."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        # From 3.13 on one instruction may take two variables, or store one and take another.
        if "LOAD_FAST" in step.opname or "DEREF" in step.opname:
            names = list(step.argval) if isinstance(step.argval, tuple) else [step.argval]
            if after is not None and after.argval == "info" and "LOAD" in after.opname:
                names.pop()
            yield from names


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of all functions inside it."""
    yield code
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _codes(inside)


def are_foreign(listeners: Iterable[Any]) -> bool:
    """Whether some of the listeners are not ours. Asked for each statement: 0.2 us."""
    for listener in listeners:  # noqa: SIM110  any() takes twice as long
        if not is_own(listener):
            return True
    return False


def is_own(listener: Any) -> bool:
    """Whether a listener is one of this package."""
    return _is_ours(getattr(listener, "__module__", None))


@functools.lru_cache(maxsize=1000)
def _is_ours(module: str | None) -> bool:
    return str(module).startswith("bloomstore.")


def _is_of_application(listener: Any) -> bool:
    """Whether a listener is neither ours nor one that SQLAlchemy has for each new connection."""
    module = str(getattr(listener, "__module__", ""))
    return not module.startswith(("bloomstore.", "sqlalchemy."))
