"""Answers for sessions: what may be skipped, what may be pruned, what must be sent.

In: a session and a statement. Out: an empty result, a statement with fewer keys, or nothing, which
means: send it as it is. A guard steps aside
  1. where the session would say something itself: it has failed, or must be begun first;
  2. where somebody else's open transaction may be this one, too (one connection for all);
  3. in a transaction that began before anybody listened, that has several databases, or whose
     connection has changed settings or another plugin; or whose database nobody has compared
     lately, nor can now;
  4. at the levels SERIALIZABLE and READ UNCOMMITTED, and with a translated schema;
  5. with parameters that replace more than the values of binds, and lists that are used up;
  6. where somebody else may change the question on its way, or the connection
  (foreign_listeners.py);
  7. when the plugin is bypassed.
Under REPEATABLE READ and on SQLite the policy `auto` answers only after the transaction has sent a
statement, because a skipped SELECT opens no snapshot.
"""

from __future__ import annotations

import collections.abc as abc
from collections.abc import Callable
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.engine import Connection, Result
from sqlalchemy.engine.result import null_result
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import ORMExecuteState, Session

from bloomstore.sql.ask import shadow
from bloomstore.sql.ask.bulk import may_be_present
from bloomstore.sql.ask.compared_database import Comparisons, Ticker
from bloomstore.sql.ask.option import Guarded, is_guarded
from bloomstore.sql.ask.plan_cache import Plans
from bloomstore.sql.ask.select_plan import ReadPlan, are_alike, with_values
from bloomstore.sql.ask.session_facts import (
    HAS_BINDS,
    STANDING,
    Known,
    QuickGet,
    Standing,
    bind_of,
    shares_connections,
)
from bloomstore.sql.capture.capture import Capture
from bloomstore.sql.capture.pending import UNUSABLE, Pending
from bloomstore.sql.capture.returning import with_returning
from bloomstore.sql.databases.isolation import allows_skipping, has_snapshots
from bloomstore.sql.guards import foreign_listeners
from bloomstore.sql.guards.caught_up import forget_catch_up
from bloomstore.sql.guards.connection_settings import CHANGED
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.guard_set import Guards

PLUGIN = "bloomstore"  # in session.info
BYPASS = "bloomstore/bypass"
SENT = "bloomstore/sent"


class Asker:
    """What a plugin does for its sessions."""

    def __init__(
        self,
        policy: str,
        guards: Guards,
        capture: Capture,
        listens_to: Callable[[Any], bool],
        comparisons: Comparisons,
    ) -> None:
        self.policy = policy
        self.guards_of = guards.of
        self._listens_to = listens_to
        # While it is None, writes go unseen and nothing is answered; another one each time.
        self.listening: object | None = None
        self._settings = capture.settings
        # Another one whenever somebody listens or ceases to, and when comparisons are old.
        self.trust: object = object()
        self._comparisons = comparisons
        self._ticker = Ticker(self, comparisons.seconds)
        self._pending_of_connection = capture.pending
        # By weak reference to what the pool has lent.
        self._written = capture.written
        self.plans = Plans(guards.of)
        self._entities: dict[Any, tuple[ActiveGuard, Any] | None] = {}
        # By mapped class, those of them whose filter says at once what need not be asked.
        self.gets: dict[Any, QuickGet] = {}

    def listens(self, *, is_on: bool) -> None:
        """Somebody listens from now on, or nobody does."""
        self.listening = (self.listening or object()) if is_on else None
        self.trust = object()

    def forget_plans(self) -> None:
        """A new guard changes what old plans say."""
        self.plans.forget()
        self._entities.clear()
        self.gets.clear()

    # Session events ----------------------------------------------------------------

    def after_begin(self, session: Session, transaction: Any, connection: Connection) -> None:
        """Remembers the connection of the session's transaction."""
        standing = session.info.get(STANDING)
        if session.info.get(PLUGIN, self) is not self:
            return  # of several plugins the last one is asked
        if standing is None:
            session.info[STANDING] = standing = Standing(self, connection)
            standing.info.pop(SENT, None)
        elif standing.connection is not connection:
            standing.may_skip = False  # several databases in one transaction
        standing.guards.clear()  # those of the outer transaction, if this is a nested one

    def after_transaction_end(self, session: Session, transaction: Any) -> None:
        """Forgets them with the outermost transaction."""
        if transaction.parent is None:
            session.info.pop(STANDING, None)

    def do_orm_execute(self, state: ORMExecuteState) -> Result[Any] | None:
        """The same as `answer`, for sessions that are not GuardedSession and for other policies."""
        statement, parameters = state.statement, state.parameters
        if isinstance(parameters, list):
            if not state.is_insert:
                return None
            changed = with_returning(state.session, statement, parameters, self.guards_of)
            if changed is None:
                return None
            state.invoke_statement(statement=changed).all()
            return null_result()
        if not state.is_select or state.is_column_load:
            return None
        if foreign_listeners.are_foreign(state._remaining_events()):
            return None  # they may still change the question
        if self.policy == "explicit" and not is_guarded(statement):
            return None
        if state.bind_arguments.keys() - {"mapper", "clause"}:
            return None  # the caller says where to ask
        if self.policy == "shadow":
            return shadow.compare(self, state)
        found = self.answer(state.session, statement, parameters, state.execution_options)
        if found is None or isinstance(found, Result):
            return found
        return state.invoke_statement(statement=found[0], params=found[1])

    # Answers -----------------------------------------------------------------------

    def answer(
        self, session: Session, statement: Any, parameters: Any, options: abc.Mapping[str, Any]
    ) -> Result[Any] | tuple[Any, Any] | None:
        """An empty result, or a statement and parameters with fewer keys, or None: leave it."""
        plan, value = self.plans.of(statement, parameters)
        if plan is None or (not plan.is_list and plan.guard.may_be_present(value)):
            return None  # what the filter has is sent, whatever else there is to know
        pending = self.pending_if_usable(session, statement, plan, options)
        if pending is UNUSABLE:
            return None
        if not plan.is_list:
            return self._skipped(plan) if plan.guard.is_absent(value, pending) else None
        key, given = value
        if not isinstance(given, abc.Collection):
            return None  # an iterator would be used up
        values = given if isinstance(given, list) else list(given)
        kept = may_be_present(plan.guard, values, pending)
        if len(kept) == len(values):
            return None
        if not kept:
            return self._skipped(plan)
        return self.with_list(session, statement, plan, parameters, key, kept)

    def with_list(
        self,
        session: Session,
        statement: Any,
        plan: ReadPlan,
        parameters: Any,
        key: str,
        values: list[Any],
    ) -> tuple[Any, Any]:
        """The statement and its parameters with other values in the list whose bind has the key."""
        if parameters and key in parameters and not _may_use_elsewhere(session, statement, plan):
            return statement, {**parameters, key: values}
        return with_values(statement, key, values), parameters

    def _skipped(self, plan: ReadPlan) -> Result[Any]:
        plan.guard.metrics.skipped_selects += 1
        return plan.empty()

    def pending_if_usable(
        self, session: Session, statement: Any, plan: ReadPlan, options: abc.Mapping[str, Any]
    ) -> Pending | None:
        """What the session has written, which is flushed; UNUSABLE if it must be left alone."""
        if BYPASS in session.info or "schema_translate_map" in options:
            return UNUSABLE
        mapper = statement._propagate_attrs.get("plugin_subject")
        if not self._may_answer(session, mapper, statement):
            return UNUSABLE
        if self._is_of_another(session, plan.guard, mapper, statement):
            return UNUSABLE
        if own := getattr(session, "execution_options", None):
            options = {**own, **options}
        if options.get("autoflush", session.autoflush) and not _is_clean(session):
            session.flush()
        if plan.guard.feed is not None and not self._is_caught_up(
            session, plan.guard, mapper, statement
        ):
            return UNUSABLE
        return self.pending_of(session, mapper, statement)

    def guard_of(self, entity: Any) -> tuple[ActiveGuard, Any] | None:
        """The guard of the primary key of a mapped class, and its mapper."""
        found = self._entities.get(entity)
        if entity not in self._entities or (found and found[1]._dispose_called):  # mapped anew
            self.gets.pop(entity, None)
            found = self._entities[entity] = self._guard_of_entity(entity)
            if found and found[0].feed is None and self.policy != "shadow":
                self.gets[entity] = QuickGet(found[0])
        return found

    def may_skip_get(
        self, session: Session, entity: Any, guard: ActiveGuard, mapper: Any, ident: Any
    ) -> bool:
        """Whether session.get can only return None."""
        if type(ident) in (tuple, list, dict) and len(guard.declared.columns) == 1:
            return False  # another spelling of one value
        if foreign_listeners.are_foreign(session.dispatch.do_orm_execute):
            return False
        if BYPASS in session.info or not self._may_answer(session, mapper):
            return False
        if self._is_of_another(session, guard, mapper):
            return False
        if guard.feed is not None and not self._is_caught_up(session, guard, mapper):
            return False
        standing: Standing | None = session.info.get(STANDING)
        quick = self.gets.get(entity)
        if (
            standing
            and quick is not None
            and self.policy == "explicit"
            and CHANGED not in standing.info  # then it is compared each time
            and not session.in_nested_transaction()  # it may fail by itself
            and not shares_connections(standing.connection.engine)
        ):
            standing.guards[entity] = Known(session, quick, mapper)
        return (
            guard.is_absent(ident, self.pending_of(session, mapper))
            and _is_clean(session)
            and not _is_known(session, mapper, ident)
        )

    def may_skip_again(self, session: Any, standing: Standing, known: Known, ident: object) -> bool:
        """may_skip_get for a key that the filter lacks, without what has not changed since then.

        Attributes instead of methods of the session: a third of a microsecond instead of a whole.
        """
        if standing.trust is not self.trust:
            return self._may_skip_anew(session, standing, known, ident)
        if self._written and standing.reference in self._written:
            pending = self._pending_of_connection(standing.connection)
            guard = known.guard
            if pending and (guard in pending.unknown or ident in pending.keys.get(guard, ())):
                return False
        identities = session.identity_map
        loaded = identities._dict
        return (
            not session._new
            and not session._deleted
            and not identities._modified
            and not (loaded and (known.identity_class, (ident,), None) in loaded)
            and (
                known.least <= ident <= known.most  # type: ignore[operator]
                if known.is_number
                else ident in known.guard.room
            )
            and standing.lent.dbapi_connection is not None
            and standing.lent._connection_record is not None  # it is not detached
            and standing.transaction.is_active
            and standing.connection._execution_options is standing.options
            and not known.mapper._dispose_called
            and CHANGED not in standing.info
            and (
                session.bind is known.bind
                if known.is_bound and not (session.binds if HAS_BINDS else session._Session__binds)
                else bind_of(session, known.mapper) is known.bind
            )
        )

    def _may_skip_anew(self, session: Any, standing: Standing, known: Known, ident: object) -> bool:
        """The same when the database must be compared first."""
        standing.guards.clear()
        if not self.may_skip_get(session, known.mapper.class_, known.guard, known.mapper, ident):
            return False
        known.guard.metrics.absent -= 1  # the caller counts it
        return True

    def _is_of_another(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any = None
    ) -> bool:
        """Whether the session may ask another database than the one that the guard has seen."""
        standing: Standing | None = session.info.get(STANDING)
        if standing is not None and standing.trust is self.trust:
            return False
        trust = self.trust  # before it is compared
        bind = bind_of(session, mapper, statement) if standing is None else standing.connection
        if why := self._comparisons.why_not(bind):
            guard.unknown(why)
        elif standing is not None and self._ticker.want():
            standing.trust = trust
        return bool(why)

    def pending_of(
        self, session: Session, mapper: Any = None, statement: Any = None
    ) -> Pending | None:
        """What the session's own transaction has written."""
        standing: Standing | None = session.info.get(STANDING)
        if standing is not None:
            return self._pending_of_connection(standing.connection)
        try:
            bind: Any = bind_of(session, mapper, statement)
        except UnboundExecutionError:
            return None
        return self._pending_of_connection(bind) if isinstance(bind, Connection) else None

    def _is_caught_up(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any = None
    ) -> bool:
        """Whether a guard with an outbox has read it in the session's transaction, which begins."""
        if guard.feed is None or BYPASS in session.info:
            return False
        if not self._may_answer(session, mapper, statement):
            return False
        arguments = {"mapper": mapper, "clause": statement}
        if why := guard.feed.catch_up(session.connection(bind_arguments=arguments)):
            guard.unknown(why)
        return not why

    def catches_up_again(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any
    ) -> bool:
        """The same as of now, not as of the first answer of the transaction."""
        arguments = {"mapper": mapper, "clause": statement}
        forget_catch_up(session.connection(bind_arguments=arguments))
        return self._is_caught_up(session, guard, mapper, statement)

    def _may_answer(self, session: Session, mapper: Any, statement: Any = None) -> bool:
        """Whether the session would ask a database whose guards these are, at a usual level."""
        try:
            bind = bind_of(session, mapper, statement)
        except UnboundExecutionError:
            return False
        # SQLAlchemy 2.0 has no options of a session.
        if "schema_translate_map" in getattr(session, "execution_options", ()):
            return False
        standing: Standing | None = session.info.get(STANDING)
        if not session.is_active or self._is_shared(session, bind):
            return False
        if foreign_listeners.may_rewrite(bind if standing is None else standing.connection):
            return False
        if standing is None:
            begun = session.get_transaction()
            if begun._connections if begun else not session.autobegin:
                return False  # it had begun before anybody listened; or must be begun first
            return (
                self._is_usable(bind)
                and (self.policy != "auto" or not has_snapshots(bind))
                and self._settings.are_known(session, bind)
            )
        options = standing.connection.get_execution_options()
        if standing.options is not options and standing.may_skip is not False:
            standing.options, standing.may_skip = options, self._is_usable(standing.connection)
        if not standing.may_skip or not standing.holds() or standing.asker is not self:
            return False
        if bind is not standing.connection and bind.engine is not standing.connection.engine:
            return False
        if self.policy == "auto" and not (
            SENT in standing.info or not has_snapshots(standing.connection)
        ):
            return False
        if standing.is_undisturbed and CHANGED not in standing.info:
            return True
        is_known = self._settings.are_known(session, standing.connection)
        standing.is_undisturbed = is_known and CHANGED not in standing.info
        return is_known

    def _is_shared(self, session: Session, bind: Any) -> bool:
        """Whether an open transaction of somebody else, who has written, may be this one, too."""
        if not self._written or not shares_connections(bind.engine):
            return False
        standing: Standing | None = session.info.get(STANDING)
        mine = None if standing is None else standing.reference
        return any(bool(self._written.get(each)) for each in list(self._written) if each != mine)

    def _is_usable(self, bind: Any) -> bool:
        """Whether answers hold for this engine or connection: it is one whose writes are seen."""
        return self._listens_to(bind) and allows_skipping(bind)

    def _guard_of_entity(self, entity: Any) -> tuple[ActiveGuard, Any] | None:
        mapper = inspect(entity, raiseerr=False)
        if mapper is None or not hasattr(mapper, "primary_key"):
            return None
        if mapper.concrete or mapper.with_polymorphic is not None:
            return None
        key = tuple(mapper.primary_key)
        for guard in self.guards_of(key[0].table):
            declared = guard.declared.columns
            if [column.name for column in declared] == [column.name for column in key] and all(
                column.table is key[0].table and are_alike(column.type, own.type)
                for column, own in zip(key, declared, strict=True)
            ):
                return guard, mapper
        return None


def _may_use_elsewhere(session: Session, statement: Any, plan: ReadPlan) -> bool:
    """Whether options, relationships or listeners may bring a bind of the same name."""
    return (
        plan.has_entities
        or bool(session.dispatch.do_orm_execute)
        or not set(map(type, statement._with_options)) <= {Guarded}
    )


def _is_known(session: Session, mapper: Any, ident: Any) -> bool:
    """Whether the session has an object of this identity, whatever the database has."""
    values = ident if type(ident) is tuple else (ident,)
    return (mapper._identity_class, values, None) in session.identity_map


def _is_clean(session: Session) -> bool:
    """Whether an autoflush would send nothing."""
    return not (session._new or session._deleted or session.identity_map.check_modified())
