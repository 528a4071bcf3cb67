"""Answers for sessions: the Guarded() option, GuardedSession, and the policies auto and shadow.

    session.scalars(select(User).where(User.email == "a@b.c").options(Guarded()))
    GuardedSession.get(User, 42)          # asks before any statement is built

A guard steps aside, and the query is sent as ever, when the session has the transaction level
SERIALIZABLE or READ UNCOMMITTED, when a schema is translated, when parameters of the statement are
replaced, or when the plugin is bypassed. ABSENT means: no committed row at this moment, as a
READ COMMITTED statement would see it. A skipped SELECT opens no snapshot, so under REPEATABLE READ
and on SQLite `auto` answers only after the transaction has sent a statement.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

from sqlalchemy import Table, inspect
from sqlalchemy.engine import Connection, Engine, Result
from sqlalchemy.orm import ORMExecuteState, Session, UserDefinedOption
from sqlalchemy.sql.elements import BindParameter

from bloomstore.sql.active import ActiveGuard
from bloomstore.sql.answer import Answer
from bloomstore.sql.pending import Pending
from bloomstore.sql.reads import ReadPlan, plan_read

log = logging.getLogger("bloomstore.sql")

PLUGIN = "bloomstore"  # in session.info
BYPASS = "bloomstore/bypass"
LEVEL = "bloomstore/level"  # in connection.info
SENT = "bloomstore/sent"
PLANS_KEPT = 1000
_LOCKING = ("SERIALIZABLE", "READ UNCOMMITTED")


class Guarded(UserDefinedOption):
    """select(...).options(Guarded()): no SQL is sent when a guard knows that no row can come."""

    propagate_to_loaders = False


class GuardedSession(Session):
    """A session whose get and get_one ask the guard of the primary key before anything else.

    Session = sessionmaker(engine, class_=GuardedSession)
    plugin.listen(engine, Session)
    """

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The object with this primary key, or None: without a query if it is surely absent."""
        asker: Asker | None = self.info.get(PLUGIN)
        if options and any(options.values()):  # get_one passes them all, with their defaults
            asker = None
        if asker is None:
            return super().get(entity, ident, **options)
        guard = asker.guard_for_get(self, entity, ident)
        if guard is None:
            return super().get(entity, ident)
        if asker.policy != "shadow" and guard.is_absent(ident, asker.pending_of(self)):
            return None
        return asker.get_and_count(guard, ident, self, super().get, entity)


class Asker:
    """What a plugin does for its sessions."""

    def __init__(
        self,
        policy: str,
        guards_of: Callable[[Table, Connection | None], list[ActiveGuard]],
        pending_of_connection: Callable[[Connection], Pending | None],
    ) -> None:
        self.policy = policy
        self._guards_of = guards_of
        self._pending_of_connection = pending_of_connection
        self._plans: dict[Any, ReadPlan | None] = {}
        self._connections: weakref.WeakKeyDictionary[Session, list[Connection]] = (
            weakref.WeakKeyDictionary()
        )
        self._levels: weakref.WeakKeyDictionary[Engine, str] = weakref.WeakKeyDictionary()
        self._entities: dict[Any, tuple[ActiveGuard, Any] | None] = {}

    def forget_plans(self) -> None:
        """A new guard changes what old plans say."""
        self._plans.clear()
        self._entities.clear()
        self._levels.clear()

    # Session events ----------------------------------------------------------------

    def after_begin(self, session: Session, transaction: Any, connection: Connection) -> None:
        """Remembers the connections of the session's transaction."""
        self._connections.setdefault(session, []).append(connection)

    def after_transaction_end(self, session: Session, transaction: Any) -> None:
        """Forgets them with the outermost transaction."""
        if transaction.parent is None:
            self._connections.pop(session, None)

    def do_orm_execute(self, state: ORMExecuteState) -> Result[Any] | None:
        """Answers a SELECT that cannot have a row; leaves every other alone."""
        if not state.is_select or state.is_column_load:
            return None
        if self.policy == "explicit" and not any(
            isinstance(option, Guarded) for option in state.user_defined_options
        ):
            return None
        session = state.session
        if BYPASS in session.info or "schema_translate_map" in state.execution_options:
            return None
        plan, binds = self._plan(state.statement)
        if plan is None or not self._may_answer(session, state):
            return None
        values = _values(plan, binds, state.parameters)
        if values is None:
            return None
        if state.execution_options.get("autoflush", session.autoflush) and not _is_clean(session):
            session.flush()
        pending = self.pending_of(session)
        if plan.is_list:
            return self._prune(state, plan, values[0], pending)
        answer = plan.guard.ask(values[0] if len(values) == 1 else tuple(values), pending)
        if answer is not Answer.ABSENT:
            return None
        if self.policy == "shadow":
            return self._compare(state, plan, values, pending)
        return plan.empty()

    # Steps -------------------------------------------------------------------------

    def guard_for_get(self, session: Session, entity: Any, ident: Any) -> ActiveGuard | None:
        """The guard to ask before session.get; None if it must step aside."""
        try:
            known = self._entities[entity]
        except KeyError:
            known = self._entities[entity] = self._guard_of_entity(entity)
        if known is None:
            return None
        guard, base = known
        identity = (base, ident if type(ident) is tuple else (ident,), None)
        if (
            identity in session.identity_map
            or BYPASS in session.info
            or not _is_clean(session)
            or not self._may_answer(session, None)
        ):
            return None
        return guard

    def get_and_count(
        self, guard: ActiveGuard, ident: Any, session: Session, get: Any, entity: Any
    ) -> Any:
        """Sends the query of a get, and counts whether the guard was right to let it through."""
        answer = guard.ask(ident, self.pending_of(session)) if self.policy == "shadow" else None
        began = time.perf_counter()
        found = get(entity, ident)
        metrics = guard.metrics
        metrics.asked += 1
        metrics.asked_seconds += time.perf_counter() - began
        if found is None:
            metrics.false_positives += answer is not Answer.ABSENT
        else:
            metrics.true_positives += 1
            if answer is Answer.ABSENT:
                self._disagrees(guard, ident, session)
        return found

    def pending_of(self, session: Session) -> Pending | None:
        """What the session's own transaction has written."""
        connections = self._connections.get(session)
        bind = session.bind
        if connections is None:
            if not isinstance(bind, Connection):
                return None
            connections = [bind]
        for connection in connections:
            found = self._pending_of_connection(connection)
            if found is not None:
                return found
        return None

    def _plan(self, statement: Any) -> tuple[ReadPlan | None, list[BindParameter[Any]]]:
        key = statement._generate_cache_key()
        if key is None:
            return None, []
        try:
            return self._plans[key.key], key.bindparams
        except KeyError:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            plan = plan_read(statement, key.bindparams, lambda table: self._guards_of(table, None))
            self._plans[key.key] = plan
            return plan, key.bindparams

    def _may_answer(self, session: Session, state: ORMExecuteState | None) -> bool:
        """Whether the isolation level allows a read to be skipped."""
        bind: Any = session.bind
        if bind is None:
            try:
                bind = (
                    session.get_bind()
                    if state is None
                    else session.get_bind(**state.bind_arguments)
                )
            except Exception:  # noqa: BLE001  a session without a bind raises when it executes
                return False
        connections = self._connections.get(session) or ()
        engine = bind
        if isinstance(bind, Connection):
            connections = (*connections, bind)
            engine = bind.engine
        level = self._levels.get(engine)
        if level is None:
            level = _level_of(engine)
            if not level:
                return False
            self._levels[engine] = level
        is_sent = False
        for connection in connections:
            if not connection.closed and not connection.invalidated:
                level = connection.info.get(LEVEL, level)
                is_sent = is_sent or SENT in connection.info
        if level in _LOCKING and engine.dialect.name != "sqlite":
            return False
        if level == "READ UNCOMMITTED":
            return False
        if self.policy == "auto" and (
            level == "REPEATABLE READ" or engine.dialect.name == "sqlite"
        ):
            return is_sent
        return True

    def _guard_of_entity(self, entity: Any) -> tuple[ActiveGuard, Any] | None:
        mapper = inspect(entity, raiseerr=False)
        if mapper is None or not hasattr(mapper, "primary_key"):
            return None
        key = tuple(mapper.primary_key)
        for guard in self._guards_of(key[0].table, None):
            if tuple(column.name for column in guard.declared.columns) == tuple(
                column.name for column in key
            ) and all(column.table is key[0].table for column in key):
                return guard, mapper._identity_class
        return None

    def _prune(
        self, state: ORMExecuteState, plan: ReadPlan, values: Any, pending: Pending | None
    ) -> Result[Any] | None:
        """Leaves the keys that may be there in an IN list."""
        try:
            values = list(values)
        except TypeError:
            return None
        if self.policy == "shadow":
            return None
        absent = plan.guard.which_are_absent(values, pending)
        kept = [value for value, gone in zip(values, absent, strict=True) if not gone]
        if len(kept) == len(values):
            return None
        if not kept:
            return plan.empty()
        statement: Any = state.statement
        statement = statement.params({plan.names[0]: kept})
        return state.invoke_statement(statement=statement)

    def _compare(
        self, state: ORMExecuteState, plan: ReadPlan, values: Any, pending: Pending | None
    ) -> Result[Any]:
        """Sends the query anyway; a row for an absent key is a false negative."""
        frozen = state.invoke_statement().freeze()
        if frozen.data:
            self._disagrees(
                plan.guard, values[0] if len(values) == 1 else tuple(values), state.session
            )
        return frozen()

    def _disagrees(self, guard: ActiveGuard, value: Any, session: Session) -> None:
        """A row that was committed in between is no false negative: then the key is known now."""
        if guard.ask(value, self.pending_of(session)) is Answer.ABSENT:
            guard.metrics.disagreements += 1
            guard.fence("shadow: the database has a row whose key the filter does not know")
            log.critical("guard %s: FALSE NEGATIVE for %r, fenced", guard.name, value)


def _values(plan: ReadPlan, binds: list[BindParameter[Any]], parameters: Any) -> list[Any] | None:
    """The values of the key's binds; None if the parameters may replace them in another way."""
    if not parameters:
        return [binds[place].effective_value for place in plan.places]
    if not isinstance(parameters, dict) or not parameters.keys() <= {bind.key for bind in binds}:
        return None
    return [
        parameters.get(bind.key, bind.effective_value)
        for bind in (binds[place] for place in plan.places)
    ]


def _is_clean(session: Session) -> bool:
    """Whether an autoflush would send nothing."""
    return not (session._new or session._deleted or session.identity_map.check_modified())


def _level_of(engine: Any) -> str:
    """The isolation level of an engine's connections; "" while it has had none."""
    dialect = engine.dialect
    return str(
        engine.get_execution_options().get("isolation_level")
        or getattr(dialect, "_on_connect_isolation_level", None)
        or getattr(dialect, "default_isolation_level", None)
        or ""
    )
