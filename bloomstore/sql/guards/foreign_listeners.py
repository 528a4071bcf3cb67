"""Foreign listeners of a session, a connection or a pool, and the changes they may make.

A lookup that a guard answers is not sent, so listeners that would have changed it, or the settings
of its connection, are not called. Where there are such listeners, the lookup is sent.

Most listeners of statements count or log them. A listener that leads each statement to its tenant
uses the connection or the cursor that it is given; a listener whose code never looks at them
cannot. So the code of a listener is read: if it uses these arguments for anything but `conn.info`,
it may change settings. SQLAlchemy passes arguments by position, so an argument is told by its
position; its name counts only for listeners with `named=True`, and to doubt.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.events import ConnectionEvents
from sqlalchemy.pool import NullPool

from bloomstore.sql.databases import traits_of
from bloomstore.sql.sqlalchemy_private import connects_by_dialect, has_events

# Events of statements and transactions, whose listeners are given a connection, and the arguments
# that they are given, in this order.
_ARGUMENTS = {
    event: arguments.split()
    for event, arguments in {
        "before_execute": "conn clauseelement multiparams params execution_options",
        "after_execute": "conn clauseelement multiparams params execution_options result",
        "before_cursor_execute": "conn cursor statement parameters context executemany",
        "after_cursor_execute": "conn cursor statement parameters context executemany",
        "commit": "conn",
        "rollback": "conn",
        "rollback_savepoint": "conn name context",
        "release_savepoint": "conn name context",
        "set_connection_execution_options": "conn opts",
    }.items()
}
# Arguments of these events that lead to the connection; "" is one that cannot be told.
_LEADING = frozenset(["conn", "cursor", "context", "result", ""])
# A listener that got a connection in another way uses it by one of these names.
_USED = frozenset(
    """execute executemany exec_driver_sql scalar scalars callproc cursor connection connect
    dbapi_connection driver_connection raw_connection""".split()
)
# Arguments that hold the values of a statement, which may be changed in place, and the names of
# methods that do so.
_VALUES = {
    "before_execute": frozenset(["clauseelement", "multiparams", "params", ""]),
    "before_cursor_execute": frozenset(["parameters", ""]),
}
_CHANGES = frozenset("update pop popitem clear __setitem__ __delitem__ setattr".split())


class _Function(NamedTuple):
    """The code of a listener, and how it gets its arguments."""

    code: CodeType
    is_method: bool  # the first argument is the object
    is_named: bool  # the others are passed by name


def may_set(connection: Connection) -> bool:
    """Whether foreign listeners hear when the connection is lent, begins or returns, and use it."""
    engine, pool = connection.engine, connection.engine.pool.dispatch
    if are_foreign(pool.checkout) or are_foreign(pool.checkin) or are_foreign(pool.reset):
        return True
    if not (has_events(connection) or has_events(engine)):
        return False
    heard = connection.dispatch
    return bool(heard.engine_connect or heard.savepoint or _are_told_of_begin(connection)) or (
        traits_of(engine.dialect).can_redirect_names and may_use(connection, *_ARGUMENTS)
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
        not is_own(listener) and _may_use_connection(listener, event)
        for event in events
        for listener in getattr(heard, event)
    )


def may_change_values(bind: Connection | Engine) -> bool:
    """Whether foreign listeners that hear of a statement may change its values in place."""
    heard = bind.dispatch
    return any(
        function is None or _changes(function, event)
        for event in _VALUES
        for listener in getattr(heard, event)
        if not is_own(listener)
        for function in _read(listener)
    )


def _may_use_connection(listener: Any, event: str) -> bool:
    return any(
        function is None or _takes_connection(function, event) for function in _read(listener)
    )


def _read(listener: Any, *, is_named: bool = False) -> list[_Function | None]:
    """The functions of a listener; None where it cannot be read."""
    is_method = isinstance(listener, MethodType)
    if is_method:
        listener = listener.__func__
    if not isinstance(listener, FunctionType):
        return [None]
    if str(listener.__module__).startswith("sqlalchemy."):
        # It wraps a listener: one that returns nothing, say, or wants its arguments by name.
        is_named = is_named or listener.__name__ == "wrap_kw"
        inside = [cell.cell_contents for cell in listener.__closure__ or ()]
        functions = [
            function
            for inner in inside
            if callable(inner)
            for function in _read(inner, is_named=is_named)
        ]
        return functions or [None]
    return [_Function(listener.__code__, is_method, is_named)]


@functools.lru_cache(maxsize=1000)
def _changes(function: _Function, event: str) -> bool:
    """Whether a function reads the values of a statement, and changes an object that may be one."""
    given = _variables(function, event, _VALUES[event])
    codes = list(_codes(function.code))
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
def _takes_connection(function: _Function, event: str) -> bool:
    """Whether a function reads an argument that leads to the connection, or uses another one."""
    given = _variables(function, event, _LEADING)
    return any(
        given.intersection(_looked_at(each)) or _USED.intersection(each.co_names)
        for each in _codes(function.code)
    )


def _variables(function: _Function, event: str, wanted: frozenset[str]) -> set[str]:
    """The variables of a function that may hold one of the wanted arguments of an event.

    A variable that has the name of such an argument is doubted in every position.
    """
    code, is_method, is_named = function
    arguments = _ARGUMENTS[event]
    with_names = code.co_argcount + code.co_kwonlyargcount
    variables = set()
    for place, name in enumerate(_parameters(code)[is_method:]):
        if is_named and place + is_method < with_names:
            argument = name if name in arguments else ""
        elif place + is_method < code.co_argcount and place < len(arguments):
            argument = arguments[place]
        else:  # *arguments, **arguments
            argument = ""
        if argument in wanted or name in wanted:
            variables.add(name)
    return variables


def _parameters(code: CodeType) -> tuple[str, ...]:
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
