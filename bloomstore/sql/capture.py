"""Sees every write of an engine and makes its keys durable before the rows can be seen.

Everything that is sent passes the dialect's own events once: unit of work, bulk forms, Core, text.

    do_execute, ...         keys among the parameters; those that the server makes are read from
                            the result before they are needed, at the latest in the durable step
    commit, prepare_twophase   the durable step, right before the database's own
    handle_error, reset     forgets what failed, and what a returned connection has left

Invariants
  1. A row becomes visible to others only after its key is durable in every chain of the filter, or
     after a fence is. An error in that step takes the transaction with it: the connection is
     invalidated first, because the pool would hand the open transaction to its next user.
  2. A fence of a transaction is raised while the transaction is open in the database, so a build
     that waits for open transactions has read its rows when it lowers the fence.
  3. Savepoints do not matter: keys of a rolled back one are spare keys.

Commit is listened to on connections that have written, not on the engine: an engine with listeners
makes each of its SELECTs 4 to 7 % slower (SQLite, 200 us), the dialect's events do not. One such
listener costs a writing transaction 40 us.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Insert, Table, event
from sqlalchemy.engine import Connection, Engine, TwoPhaseTransaction
from sqlalchemy.sql import CompoundSelect, Delete, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from bloomstore.sql.active import ActiveGuard
from bloomstore.sql.flight import Flight
from bloomstore.sql.pending import LEVEL, Pending
from bloomstore.sql.text import Text
from bloomstore.sql.writes import NOTHING, READS, Server, WritePlan, plan_writes

PLANS_KEPT = 5000  # SQLAlchemy itself keeps 500 compiled statements per engine
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
        # By the id of the compiled statement, with a weak reference that says whose id it is.
        self._plans: dict[int, tuple[weakref.ref[Any], WritePlan | None]] = {}
        self._texts: dict[str, Text] = {}
        self._listeners: dict[str, Callable[..., Any]] = {
            "do_execute": self.do_execute,
            "do_executemany": self.do_execute,
            "do_execute_no_params": self.do_execute_no_params,
            "handle_error": self.handle_error,
            "reset": self.reset,
        }

    def listen(self, engine: Engine) -> None:
        """From now on every write of this engine is seen."""
        for name, listener in self._listeners.items():
            event.listen(engine, name, listener)

    def unlisten(self, engine: Engine) -> None:
        """Takes every listener away; a transaction that has written still ends as it must."""
        for name, listener in self._listeners.items():
            event.remove(engine, name, listener)

    def pending(self, connection: Connection) -> Pending | None:
        """What the connection's transaction has written, if anything."""
        if connection.closed or connection.invalidated:
            return None
        found: Pending | None = connection.info.get(self.key)
        if found is None or found.transaction() is not connection.get_transaction():
            return None
        found.resolve()
        return found

    def forget_plans(self) -> None:
        """A new guard changes what old plans say."""
        self._plans.clear()

    # Events ------------------------------------------------------------------------

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any) -> None:
        """Collects the keys that are sent."""
        self._sees(context.root_connection, statement, context)

    def do_execute_no_params(self, cursor: Any, statement: str, context: Any) -> None:
        """The same."""
        self._sees(context.root_connection, statement, context)

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

    def reset(self, dbapi_connection: Any, record: Any, reset_state: Any) -> None:
        """A connection that returns to the pool carries nothing."""
        record.info.pop(self.key, None)

    # Steps -------------------------------------------------------------------------

    def _sees(self, connection: Connection, statement: str, context: Any) -> None:
        compiled = context.compiled
        if compiled is None:
            self._sees_text(connection, statement)
            return
        known = self._plans.get(id(compiled))
        if known is not None and known[0]() is compiled:
            plan = known[1]
        else:
            plan = self._plan(compiled, connection)
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[id(compiled)] = weakref.ref(compiled), plan
        if plan is READS:
            return
        if plan is None:
            self._sees_text(connection, statement)
            return
        if "schema_translate_map" in connection.get_execution_options():
            plan = self._plan(compiled, connection)  # it depends on the map
            assert plan is not None
        if plan is not NOTHING:
            self._sees_write(connection, plan, context)

    def _sees_write(self, connection: Connection, plan: WritePlan, context: Any) -> None:
        pending = self._pending_of(connection)
        is_autocommit = _is_autocommit(connection)
        if pending.context is not context or is_autocommit:  # not again for each batch of many rows
            pending.sees(plan, context)
        if plan.written and is_autocommit:
            for guard, sources in plan.written:
                if any(isinstance(source, Server) for source in sources):
                    pending.unknown[guard] = "a server-made key under AUTOCOMMIT"
            self._settle_in_flight(connection, pending)

    def _plan(self, compiled: Any, connection: Connection) -> WritePlan | None:
        """None: to be treated as text."""
        if not isinstance(compiled, SQLCompiler) or not isinstance(compiled.statement, _STRUCTURED):
            return None
        return plan_writes(compiled, lambda table: self._guards_of(table, connection))

    def _pending_of(self, connection: Connection) -> Pending:
        """What this transaction has written; from its first write on the commit is heard."""
        found: Pending | None = connection.info.get(self.key)
        if found is None:
            found = connection.info[self.key] = Pending()
            event.listen(connection, "commit", self.commit)
        transaction = connection.get_transaction()
        if found.transaction() is not transaction:  # the one before was rolled back, or settled
            found.clear()
            found.transaction = _none if transaction is None else weakref.ref(transaction)
            if isinstance(transaction, TwoPhaseTransaction):
                event.listen(connection, "prepare_twophase", self.prepare_twophase)
        return found

    def _sees_text(self, connection: Connection, statement: str) -> None:
        text = self._texts.get(statement)
        if text is None:
            if len(self._texts) >= TEXTS_KEPT:
                self._texts.clear()
            text = self._texts[statement] = Text(statement)
        if text.level:
            connection.info[LEVEL] = text.level
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

    def _landed(self, connection: Connection, *rest: Any) -> None:
        self._flight.land(connection)

    def _settle(self, connection: Connection, pending: Pending) -> None:
        try:
            pending.settle()
        except BaseException:
            connection.invalidate()
            raise

    def _settle_in_flight(self, connection: Connection, pending: Pending) -> None:
        """Under AUTOCOMMIT: a build that begins now waits until the statement has ended."""
        if self._flight.take_off(connection):
            event.listen(connection, "after_cursor_execute", self._landed)
        try:
            pending.settle()
        except BaseException:
            self._flight.land(connection)
            raise


def _none() -> None:
    """The weak reference of no transaction."""


def _is_autocommit(connection: Connection) -> bool:
    return bool(
        connection.dialect.detect_autocommit_setting(
            connection.connection.dbapi_connection  # type: ignore[arg-type]
        )
    )
