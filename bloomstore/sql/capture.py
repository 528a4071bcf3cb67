"""Sees every write of an engine and makes its keys durable before the rows can be seen.

Listens to Core events only, so that unit of work, bulk forms, Core and text all pass here once:

    before_execute          asks for the keys that the server will make, of many rows at once
    before_cursor_execute   keys among the parameters; those that the server makes are read from
                            the result before they are needed, at the latest in the durable step
    after_cursor_execute    a statement under AUTOCOMMIT has ended
    commit, prepare_twophase   one durable step, right before the database's own
    rollback, reset         forgets

Invariants
  1. A row becomes visible to others only after its key is durable in every chain of the filter, or
     after a fence is. An error in that step takes the transaction with it: the connection is
     invalidated first, because the pool would hand the open transaction to its next user.
  2. A fence of a transaction is raised while the transaction is open in the database, so a build
     that waits for open transactions has read its rows when it lowers the fence.
  3. Savepoints do not matter: keys of a rolled back one are spare keys.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Insert, Table, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import ExecutionContext
from sqlalchemy.sql import CompoundSelect, Delete, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from bloomstore.sql.active import ActiveGuard
from bloomstore.sql.flight import Flight
from bloomstore.sql.pending import Pending
from bloomstore.sql.text import Text
from bloomstore.sql.writes import NOTHING, Server, WritePlan, plan_writes

TEXTS_KEPT = 1000  # an application has few different texts; one that has many pays for each
_STRUCTURED = (Insert, Update, Delete, Select, CompoundSelect, FunctionElement)


class Capture:
    """The listeners of one plugin on its engines."""

    def __init__(
        self,
        key: str,
        guards_of: Callable[[Table, Any], list[ActiveGuard]],
        all_guards: Callable[[], Iterator[ActiveGuard]],
        flight: Flight,
    ) -> None:
        self.key = key
        self._guards_of = guards_of
        self._all_guards = all_guards
        self._flight = flight
        self._plans: weakref.WeakKeyDictionary[SQLCompiler, WritePlan | None] = (
            weakref.WeakKeyDictionary()
        )
        self._texts: dict[str, Text] = {}
        self._listeners: dict[str, Callable[..., Any]] = {
            "before_execute": self.before_execute,
            "before_cursor_execute": self.before_cursor_execute,
            "after_cursor_execute": self.after_cursor_execute,
            "handle_error": self.handle_error,
            "commit": self.commit,
            "prepare_twophase": self.prepare_twophase,
            "rollback": self.rollback,
        }

    def listen(self, engine: Engine) -> None:
        """From now on every write of this engine is seen."""
        for name, listener in self._listeners.items():
            event.listen(engine, name, listener, retval=name == "before_execute")
        event.listen(engine, "reset", self.reset)

    def unlisten(self, engine: Engine) -> None:
        """Takes every listener away."""
        for name, listener in self._listeners.items():
            event.remove(engine, name, listener)
        event.remove(engine, "reset", self.reset)

    def pending(self, connection: Connection) -> Pending | None:
        """What the connection's transaction has written, if anything."""
        if connection.closed or connection.invalidated:
            return None
        found: Pending | None = connection.info.get(self.key)
        if found is not None:
            found.resolve()
        return found

    def forget_plans(self) -> None:
        """A new guard changes what old plans say."""
        self._plans.clear()

    # Events ------------------------------------------------------------------------

    def before_execute(
        self,
        connection: Connection,
        element: Any,
        multiparams: Any,
        params: Any,
        execution_options: Any,
    ) -> tuple[Any, Any, Any]:
        """Asks for server-made keys of many rows at once, where RETURNING can be had."""
        if (
            isinstance(element, Insert)
            and len(multiparams) > 1
            and not element._returning
            and element._return_defaults is False
            and connection.dialect.insert_executemany_returning
            and element.select is None
            and isinstance(element.table, Table)
        ):
            wanted = [
                column
                for guard in self._guards_of(element.table, connection)
                for each in guard.declared.columns
                if (column := element.table.columns.get(each.key)) is not None
                and column.key not in multiparams[0]
                and _is_made_by_server(column)
            ]
            if wanted:
                element = element.return_defaults(*wanted)
        return element, multiparams, params

    def before_cursor_execute(
        self,
        connection: Connection,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: ExecutionContext,
        executemany: bool,
    ) -> None:
        """Collects the keys that are sent."""
        compiled: Any = context.compiled
        plan = None
        if compiled is not None:
            try:
                plan = self._plans[compiled]
            except KeyError:
                plan = self._plans[compiled] = self._plan(compiled, connection)
            if "schema_translate_map" in connection.get_execution_options():
                plan = self._plan(compiled, connection)  # it depends on the map
            if plan is NOTHING:
                return
        if plan is None:
            self._sees_text(connection, statement)
            return
        pending = self._pending_of(connection)
        is_autocommit = _is_autocommit(connection)
        if pending.context is not context or is_autocommit:  # not again for each batch of many rows
            pending.sees(plan, context)
        if plan.written and is_autocommit:
            for guard, sources in plan.written:
                if any(isinstance(source, Server) for source in sources):
                    pending.unknown[guard] = "a server-made key under AUTOCOMMIT"
            self._settle_in_flight(connection, pending)

    def after_cursor_execute(
        self,
        connection: Connection,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: ExecutionContext,
        executemany: bool,
    ) -> None:
        """The statement has landed."""
        self._flight.land(connection)

    def handle_error(self, context: Any) -> None:
        """A statement that failed is not in flight any more, and made no key."""
        connection = context.connection
        if connection is not None:
            self._flight.land(connection)
            pending = self.pending(connection)
            if pending is not None:
                pending.waiting = None

    def commit(self, connection: Connection) -> None:
        """The durable step, right before the database's own commit."""
        pending: Pending | None = connection.info.get(self.key)
        if pending is not None:
            self._settle(connection, pending)

    def prepare_twophase(self, connection: Connection, xid: Any) -> None:
        """A prepared transaction may be committed by anybody: the step comes before."""
        self.commit(connection)

    def rollback(self, connection: Connection) -> None:
        """Nothing was ever visible."""
        if not connection.invalidated:
            connection.info.pop(self.key, None)

    def reset(self, dbapi_connection: Any, record: Any, reset_state: Any) -> None:
        """A connection that returns to the pool carries nothing."""
        record.info.pop(self.key, None)

    # Steps -------------------------------------------------------------------------

    def _plan(self, compiled: Any, connection: Connection) -> WritePlan | None:
        """None: to be treated as text."""
        if not isinstance(compiled, SQLCompiler) or not isinstance(compiled.statement, _STRUCTURED):
            return None
        return plan_writes(compiled, lambda table: self._guards_of(table, connection))

    def _pending_of(self, connection: Connection) -> Pending:
        found: Pending | None = connection.info.get(self.key)
        if found is None:
            found = connection.info[self.key] = Pending()
        return found

    def _sees_text(self, connection: Connection, statement: str) -> None:
        text = self._texts.get(statement)
        if text is None:
            if len(self._texts) >= TEXTS_KEPT:
                self._texts.clear()
            text = self._texts[statement] = Text(statement)
        if not text.may_write and not text.may_commit:
            return
        written = {
            guard: "written by text or driver SQL"
            for guard in self._all_guards()
            if text.writes_to(guard.declared.table.name)
        }
        pending = self._pending_of(connection)
        pending.unknown.update(written)
        if _is_autocommit(connection):
            if written:
                self._settle_in_flight(connection, pending)
        elif text.may_commit and (pending.keys or pending.unknown):
            self._settle(connection, pending)
            pending.unknown.update(written)  # the rows may come after a build's snapshot

    def _settle(self, connection: Connection, pending: Pending) -> None:
        try:
            pending.settle()
        except BaseException:
            connection.invalidate()
            raise

    def _settle_in_flight(self, connection: Connection, pending: Pending) -> None:
        """Under AUTOCOMMIT: a build that begins now waits until the statement has ended."""
        self._flight.take_off(connection)
        try:
            pending.settle()
        except BaseException:
            self._flight.land(connection)
            raise


def _is_made_by_server(column: Any) -> bool:
    return column.default is None and (column.primary_key or column.server_default is not None)


def _is_autocommit(connection: Connection) -> bool:
    return bool(
        connection.dialect.detect_autocommit_setting(
            connection.connection.dbapi_connection  # type: ignore[arg-type]
        )
    )
