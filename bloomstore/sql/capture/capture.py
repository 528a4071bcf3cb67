"""Sees every write of an engine and makes its keys durable before the rows can be seen.

Every statement passes these methods of the dialect once, whether the unit of work, a bulk method,
Core or text produced it. They are wrapped.

    do_execute, ...         keys among the parameters; those that the server makes are read from
                            the result before they are needed, at the latest in the durable step
    do_commit, do_..._twophase   the durable step, right before the database's own

Invariants
  1. A row becomes visible to others only after its key is durable in every chain of the filter, or
     after a fence is. An error in that step takes the transaction with it: the connection is
     invalidated first, because the pool would hand the open transaction to its next user.
  2. A fence of a transaction is raised while the transaction is open in the database, so a build
     that waits for open transactions has read its rows when the build lowers the fence.
  3. Savepoints do not matter: keys of one that is rolled back are spare keys. But releasing one may
     be a commit on SQLite, whose driver sends no BEGIN before it.

Wrapped methods are the last point before the driver, after every listener that may still write,
and reads hardly pay for them: session.get of 95 us on SQLite took 0.1 % longer with a wrapped
do_execute, 2 to 4 % longer with an event of that name, 4 to 7 % with a commit listener.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.engine.default import DefaultDialect

from bloomstore.errors import BloomStoreError, StoreFailed
from bloomstore.sql.attached import CHANGED, LEFT, OwnWritesByLoan, forget_catch_up
from bloomstore.sql.capture.autocommit_lock import AutocommitLock
from bloomstore.sql.capture.dialect_patch import Wrap
from bloomstore.sql.capture.pending import ALTERED, Pending
from bloomstore.sql.capture.plan_cache import WritePlans
from bloomstore.sql.capture.tampering import is_another, is_replaced
from bloomstore.sql.capture.write_plan import NOTHING, READS, WritePlan
from bloomstore.sql.databases import traits_of
from bloomstore.sql.databases.isolation import is_autocommit
from bloomstore.sql.databases.sql_text import Effect, Text
from bloomstore.sql.guards import foreign_listeners
from bloomstore.sql.guards.connection_settings import no_transaction
from bloomstore.sql.guards.guard_set import Guards
from bloomstore.sql.sqlalchemy_private import commits_on_return, has_events

log = logging.getLogger("bloomstore.sql")


class Capture:
    """The wrapped methods of one plugin's engines. Safe in several threads."""

    def __init__(
        self,
        guards: Guards,
        autocommit_lock: AutocommitLock,
    ) -> None:
        self._guards = guards
        self.autocommit_lock = autocommit_lock
        self.plans = WritePlans(guards)
        self.settings = guards.settings
        self._pendings: OwnWritesByLoan[Pending] = OwnWritesByLoan()
        self.written = self._pendings.by_reference  # every Pending, by the loan of its connection
        self._wraps: dict[Dialect, list[Wrap]] = {}  # engines with options share a dialect

    def listen(self, engine: Engine) -> None:
        """From now on every write of this engine is seen."""
        if engine.dialect in self._wraps:
            return
        arounds = {
            "do_execute": self._around_execute,
            "do_executemany": self._around_execute,
            "do_execute_no_params": self._around_execute_no_params,
            "do_commit": self._around_commit,
            "do_prepare_twophase": self._around_twophase,
            "do_commit_twophase": self._around_twophase,  # without a prepare
        }
        if commits_on_return(engine.pool):
            event.listen(engine, "reset", self._given_back)
        self._wraps[engine.dialect] = [
            Wrap(engine.dialect, name, around) for name, around in arounds.items()
        ]

    def unlisten(self, engine: Engine) -> None:
        """Puts every method back, after the keys of open transactions were added.

        From the first line on no statement is collected any more, so the keys that other threads
        have collected by then are all there are.
        """
        wraps = self._wraps.pop(engine.dialect, [])
        for pending in self._pendings.values():
            connection = pending.connection()
            if connection is not None and connection.dialect is engine.dialect:
                try:
                    self._make_durable(pending)
                except BloomStoreError as error:  # a closed store guards nothing
                    log.warning("keys of an open transaction were not added: %s", error)
        for wrap in wraps:
            wrap.undo()
        if event.contains(engine, "reset", self._given_back):
            event.remove(engine, "reset", self._given_back)

    def listens_to(self, bind: Engine | Connection) -> bool:
        """Whether writes are captured; engines with other options share a dialect."""
        return bind.dialect in self._wraps

    def pending(self, connection: Connection) -> Pending | None:
        """The writes of the connection's open transaction, if it has any."""
        if not self.written or connection.closed or connection.invalidated:
            return None
        pending = self._pendings.of(connection.connection)
        if pending is None or pending.transaction() is not connection.get_transaction():
            return None
        with pending.lock:
            pending.resolve()
        return pending

    # Around the methods of a dialect -----------------------------------------------

    def _around_execute(self, wrap: Wrap, inner: Callable[..., Any]) -> Callable[..., Any]:
        reads = self.plans.reads
        is_plain = getattr(inner, "__func__", None) is DefaultDialect.do_execute

        def execute(cursor: Any, statement: str, parameters: Any, context: Any = None) -> Any:
            if context.compiled in reads and statement is context.statement:
                if is_plain:
                    return cursor.execute(statement, parameters)
                return inner(cursor, statement, parameters, context)
            send = partial(inner, cursor, statement, parameters, context)
            return self._send(wrap, statement, parameters, context, send)

        return execute

    def _around_execute_no_params(
        self, wrap: Wrap, inner: Callable[..., Any]
    ) -> Callable[..., Any]:
        def execute(cursor: Any, statement: str, context: Any = None) -> Any:
            send = partial(inner, cursor, statement, context)
            return self._send(wrap, statement, None, context, send)

        return execute

    def _around_commit(self, wrap: Wrap, inner: Callable[..., Any]) -> Callable[..., Any]:
        def commit(lent: Any) -> Any:
            if wrap.is_active:
                self._commits(lent)
            return inner(lent)

        return commit

    def _around_twophase(self, wrap: Wrap, inner: Callable[..., Any]) -> Callable[..., Any]:
        def twophase(connection: Connection, *rest: Any, **named: Any) -> Any:
            if wrap.is_active:  # any connection may commit a prepared transaction
                self._commits(connection.connection)
            return inner(connection, *rest, **named)

        return twophase

    # Steps -------------------------------------------------------------------------

    def _commits(self, lent: Any) -> None:
        """Takes the durable step, right before the database's own commit."""
        raw = lent.dbapi_connection
        for reference in list(self.written):  # a copy: other threads come and go
            other = reference()
            # Some pools lend one connection to several at a time.
            if other is not None and other.dbapi_connection is raw:
                pending = self.written.get(reference)
                if pending is None:
                    continue
                connection = pending.connection()
                if connection and pending.transaction() is connection.get_transaction():
                    self._make_durable_or_fail(connection, pending)
                else:
                    with pending.lock:
                        pending.clear()  # its transaction was rolled back

    def _send(
        self, wrap: Wrap, statement: str, sent: Any, context: Any, send: Callable[[], Any]
    ) -> Any:
        """Collects the keys of a statement and sends it; a statement that fails has made no key."""
        # While the defaults of a statement are made, sequences are read in its context.
        if not wrap.is_active or context.current_parameters is not None:
            return send()
        connection: Connection = context.root_connection
        try:
            self._sees(connection, statement, context, sent)
            return send()
        except BaseException as error:
            if not connection.closed and not connection.invalidated:
                pending = self._pendings.of(connection.connection)
                if pending is not None and pending.waits_for(context):
                    # Some of many rows may have been written; after an interrupt nothing is known.
                    is_refused = isinstance(error, connection.dialect.loaded_dbapi.Error)
                    with pending.lock:
                        pending.fails(has_written=context.executemany or not is_refused)
            raise
        finally:
            self.autocommit_lock.release(context)

    def _given_back(self, raw: Any, record: Any, state: Any) -> None:
        """Takes the durable step for a transaction that a pool commits when it gets it back.

        The garbage collector gives such connections back, in the middle of anything.
        """
        left: Pending | None = record.info.pop(LEFT, None)
        if left is not None and not state.transaction_was_reset:
            if self._guards.store.is_writing_here:
                raise StoreFailed(
                    "a connection with an open transaction was garbage-collected during an add; its"
                    " commit is refused because its keys cannot be made durable here: close or"
                    " commit sessions explicitly"
                )
            self._make_durable(left)

    def _sees(self, connection: Connection, statement: str, context: Any, sent: Any = None) -> None:
        version = self._guards.refresh()
        compiled = context.compiled
        if compiled is None:
            self._sees_text(connection, statement, context, version)
            return
        plan = self.plans.of(compiled)
        if plan is READS:
            if is_another(context, statement):
                self._sees_text(connection, statement, context, version)
            return
        if plan is None:
            self._sees_text(connection, statement, context, version)
            return
        forget_catch_up(connection)
        pending = self._pending_of(connection)
        with pending.lock:
            if connection.dialect in self._wraps:
                self._sees_plan(connection, pending, plan, version, context, statement, sent)

    def _sees_plan(
        self,
        connection: Connection,
        pending: Pending,
        plan: WritePlan,
        version: int,
        context: Any,
        statement: str,
        sent: Any,
    ) -> None:
        compiled = context.compiled
        translated = context.execution_options.get("schema_translate_map")
        anywhere = pending.is_meddled or (self.settings.have_changed and CHANGED in connection.info)
        key = compiled
        if translated or anywhere:  # the plan depends on where names lead
            elsewhere = self.plans.make(compiled, translated or {}, anywhere=anywhere)
            assert elsewhere is not None
            plan, key = elsewhere, (compiled, frozenset((translated or {}).items()), anywhere)
        if plan.effects:
            self.settings.may_change(connection, plan.effects)
        pending.concerns(key, plan, version)
        if plan is NOTHING:
            if is_autocommit(connection):
                self._make_durable_before(context, pending)
        else:
            self._sees_write(connection, pending, plan, context)
            if has_events(connection) or has_events(connection.engine):
                self._distrust(connection, pending, plan, context, statement, sent)

    def _sees_write(
        self, connection: Connection, pending: Pending, plan: WritePlan, context: Any
    ) -> None:
        autocommits = is_autocommit(connection)
        is_new = pending.context is not context or autocommits  # not each batch of many rows
        if is_new:
            pending.sees(plan, context)
        may_clip = traits_of(connection.dialect).clips_values
        if may_clip and (pending.is_meddled or self.settings.have_changed):
            are_same = not plan.written or self.settings.hold(connection)
            for guard, _ in () if are_same else plan.written:  # values may be clipped
                pending.unknown[guard] = "written after the connection's settings were changed"
        if plan.written and autocommits:
            for guard, _ in plan.made:
                pending.unknown[guard] = "a server-made key under AUTOCOMMIT"
            self._make_durable_before(context, pending)

    def _distrust(
        self,
        connection: Connection,
        pending: Pending,
        plan: WritePlan,
        context: Any,
        statement: str,
        sent: Any,
    ) -> None:
        """Fences guards if a listener of before_cursor_execute has replaced the statement."""
        if connection.dispatch.before_cursor_execute and is_replaced(context, statement, sent):
            if statement is not context.statement:
                self._sees_text(connection, statement, context, pending.version)
            for guard, _ in plan.written:
                pending.unknown[guard] = "another listener changed the statement before it was sent"
            if plan.written and is_autocommit(connection):
                self._make_durable_before(context, pending)

    def _pending_of(self, connection: Connection) -> Pending:
        """The Pending of the connection's present transaction."""
        loan = connection.connection
        pending = self._pendings.of(loan)
        if pending is None:
            pending = Pending()
            self._pendings.put(loan, pending)
            if commits_on_return(connection.engine.pool):
                connection.info[LEFT] = pending
        transaction = connection.get_transaction()
        before = pending.transaction()
        if before is not transaction:  # the one before was rolled back or committed
            with pending.lock:
                if before is not None and before.is_active:
                    self._make_durable(pending)  # some pools lend one connection twice
                pending.clear()
                pending.is_meddled = foreign_listeners.may_set(connection)
                pending.transaction = (
                    no_transaction if transaction is None else weakref.ref(transaction)
                )
                pending.connection = weakref.ref(connection)
        return pending

    def _sees_text(
        self, connection: Connection, statement: str, context: Any, version: int
    ) -> None:
        text = self.plans.text(connection.dialect, statement)
        if not text.effects:
            return
        effects, may_commit = text.effects, text.may_commit
        if effects & Effect.TOUCHES_SETTINGS:
            self.settings.may_change(connection, effects)
        if not text.may_write and not may_commit:
            return
        forget_catch_up(connection)
        written = {
            guard: ALTERED if text.may_alter else "written by text or driver SQL"
            for guard in self._guards.everything()
            if text.writes_to(guard.declared.table.name)
        }
        if written and text.may_alter:  # names may lead elsewhere
            self.settings.may_change(connection, Effect.SETS)
        pending = self._pending_of(connection)
        with pending.lock:
            if connection.dialect not in self._wraps:
                return
            if text.may_write:
                pending.concerns(text, None, version)
            pending.unknown.update(written)
            if is_autocommit(connection):
                if text.may_write:
                    self._make_durable_before(context, pending)
            elif may_commit and pending:
                self._make_durable_or_fail(connection, pending)
                pending.unknown.update(written)  # the rows may come after a build's snapshot

    def _look_again(self, pending: Pending) -> None:
        """Finds guards that were declared, and built, between a statement and its commit."""
        if not pending.looked_at or self._guards.refresh() == pending.version:
            return
        for statement, before in pending.looked_at.items():
            if isinstance(statement, Text):
                now = [
                    guard
                    for guard in self._guards.everything()
                    if statement.writes_to(guard.declared.table.name)
                ]
            else:
                is_whole = isinstance(statement, tuple)
                compiled, translated, anywhere = statement if is_whole else (statement, (), False)
                plan = self.plans.make(compiled, dict(translated), anywhere=anywhere)
                now = [] if plan is None else [guard for guard, _ in plan.written]
            known = () if before is None else {guard for guard, _ in before.written}
            for guard in now:
                if guard not in known:
                    pending.unknown[guard] = (
                        "it was declared while a transaction was writing to its table"
                    )

    def _make_durable_or_fail(self, connection: Connection, pending: Pending) -> None:
        """Makes the keys durable; an error takes the transaction with it (invariant 1)."""
        try:
            self._make_durable(pending)
        except BaseException:
            connection.invalidate()
            raise

    def _make_durable_before(self, context: Any, pending: Pending) -> None:
        """Makes the keys of a statement under AUTOCOMMIT durable, before it is sent.

        A build that begins now waits until the statement has ended. A build that began before the
        lock was taken is found when the guards are looked at again, which comes after it.
        """
        self.autocommit_lock.hold(context)
        self._make_durable(pending)

    def _make_durable(self, pending: Pending) -> None:
        """Adds the keys now, even if the application has a batch of the store open."""
        with pending.lock:
            self._look_again(pending)
            with self._guards.store.apart():
                pending.make_durable()
