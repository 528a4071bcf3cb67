"""GuardedSession: asks the guards before SQLAlchemy does anything.

    session.scalars(select(User).where(User.email == "a@b.c").options(Guarded()))
    session.get(User, 42)

ABSENT means: no committed row at this moment, as a READ COMMITTED statement would see it, and none
of the own transaction. What is asked and when a guard steps aside is in asker.py.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy.engine import Result
from sqlalchemy.engine.result import null_result
from sqlalchemy.orm import Session
from sqlalchemy.sql import Insert
from sqlalchemy.util import EMPTY_DICT as NO_OPTIONS

from bloomstore.errors import BloomStoreError
from bloomstore.sql.ask.asker import PLUGIN, Asker
from bloomstore.sql.ask.option import is_guarded
from bloomstore.sql.ask.session_facts import STANDING, QuickGet, Standing
from bloomstore.sql.capture.returning import with_returning
from bloomstore.sql.guards.foreign_listeners import are_foreign
from bloomstore.sql.guards.metrics import Metrics


class GuardedSession(Session):
    """A session that asks before a statement is built (get, get_one) or executed (Guarded()).

    Session = sessionmaker(engine, class_=GuardedSession)
    plugin.listen(engine, Session)

    It needs no do_orm_execute event, which would cost each statement of the session some 5 %.
    Session classes of your own come before it: class Session(Logged, GuardedSession).
    """

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        order = cls.__mro__
        between = order[order.index(GuardedSession) + 1 : order.index(Session)]
        for other in between:
            if hidden := vars(other).keys() & {"get", "execute", "scalars", "scalar"}:
                raise TypeError(
                    f"{cls.__name__}: GuardedSession would hide {min(hidden)} of {other.__name__};"
                    f" name {other.__name__} before GuardedSession"
                )

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The object with this primary key, or None: without a query if it is surely absent."""
        # What is usual in one go: to ask costs 0.5 us, an absent key 1 us from the second one of a
        # transaction on, 2.4 the first time. get_one passes options, all of them with defaults.
        standing: Standing | None = self.info.get(STANDING)
        known = standing.guards.get(entity) if standing else None
        quick: QuickGet | None = known
        if not quick:
            asker: Asker | None = self.info.get(PLUGIN)
            quick = None if asker is None else asker.gets.get(entity)
        if quick is None:
            return self._ask_and_get(entity, ident, options)
        guard = quick.guard
        asked = guard.filter  # before the doubt, see ActiveGuard
        if (options and not _are_defaults(options)) or type(ident) is not guard.own or guard.doubt:
            return self._ask_and_get(entity, ident, options)
        try:
            may_be_there = ident in asked
        except BloomStoreError:
            return self._ask_and_get(entity, ident, options)
        metrics = guard.metrics
        if not may_be_there:
            if standing and known:
                if standing.asker.may_skip_again(self, standing, known, ident):
                    metrics.skipped_gets += 1
                    return None
                return super().get(entity, ident)
        elif asked.is_quick:  # and so it is sound
            if not metrics.true_positives & 63:
                return self._get_and_count(metrics, entity, ident)
            found = super().get(entity, ident)
            if found is None:
                metrics.false_positives += 1
            else:
                metrics.true_positives += 1
            return found
        return self._ask_and_get(entity, ident, options)

    def _ask_and_get(self, entity: Any, ident: Any, options: dict[str, Any]) -> Any:
        asker: Asker | None = self.info.get(PLUGIN)
        found_guard = asker.guard_of(entity) if asker and _are_defaults(options) else None
        if asker is None or found_guard is None or asker.policy == "shadow":
            return super().get(entity, ident, **options)
        guard, mapper = found_guard
        metrics = guard.metrics
        maybe = metrics.maybe
        if asker.may_skip_get(self, entity, guard, mapper, ident):
            metrics.absent -= 1  # the answer has counted
            metrics.skipped_gets += 1
            return None
        if metrics.maybe > maybe:
            metrics.maybe -= 1
            return self._get_and_count(metrics, entity, ident)
        return super().get(entity, ident)

    def _get_and_count(self, metrics: Metrics, entity: Any, ident: Any) -> Any:
        """A get after a MAYBE; how long they take is measured now and then."""
        began = time.perf_counter()
        found = super().get(entity, ident)
        metrics.asked += 1
        metrics.asked_seconds += time.perf_counter() - began
        metrics.true_positives += found is not None
        metrics.false_positives += found is None
        return found

    # SQLAlchemy's own get, too, comes through `execute`. What has no option is passed on as Session
    # would do it: calling its `execute` instead takes half a microsecond more.

    def execute(
        self,
        statement: Any,
        params: Any = None,
        *,
        execution_options: Any = NO_OPTIONS,
        bind_arguments: Any = None,
        _parent_execute_state: Any = None,
        _add_event: Any = None,
    ) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        if type(params) is list or getattr(statement, "_with_options", True):
            asked = self._asked(statement, params, execution_options, bind_arguments)
            if isinstance(asked, Result):
                return asked
            statement, params = asked
        return self._execute_internal(
            statement,
            params,
            execution_options=execution_options,
            bind_arguments=bind_arguments,
            _parent_execute_state=_parent_execute_state,
            _add_event=_add_event,
        )

    def scalars(
        self,
        statement: Any,
        params: Any = None,
        *,
        execution_options: Any = NO_OPTIONS,
        bind_arguments: Any = None,
        **more: Any,
    ) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        if type(params) is list or getattr(statement, "_with_options", True):
            asked = self._asked(statement, params, execution_options, bind_arguments)
            if isinstance(asked, Result):
                return asked.scalars()
            statement, params = asked
        return self._execute_internal(
            statement,
            params,
            execution_options=execution_options,
            bind_arguments=bind_arguments,
            **more,
        ).scalars()

    def scalar(
        self,
        statement: Any,
        params: Any = None,
        *,
        execution_options: Any = NO_OPTIONS,
        bind_arguments: Any = None,
        **more: Any,
    ) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        if type(params) is list or getattr(statement, "_with_options", True):
            asked = self._asked(statement, params, execution_options, bind_arguments)
            if isinstance(asked, Result):
                return asked.scalar()
            statement, params = asked
        return self._execute_internal(
            statement,
            params,
            execution_options=execution_options,
            bind_arguments=bind_arguments,
            _scalar_result=True,
            **more,
        )

    def _asked(
        self, statement: Any, params: Any, options: Any, bind_arguments: Any
    ) -> Result[Any] | tuple[Any, Any]:
        """The result if it is known, or what to send."""
        asker: Asker | None = self.info.get(PLUGIN)
        if asker is None or asker.policy != "explicit":  # else the event does it
            return statement, params
        if isinstance(params, list):
            changed = (
                with_returning(self, statement, params, asker.guards_of)
                if isinstance(statement, Insert)
                else None
            )
            if changed is None:
                return statement, params
            self._execute_internal(
                changed, params, execution_options=options, bind_arguments=bind_arguments
            ).all()
            return null_result()
        if bind_arguments or not is_guarded(statement):
            return statement, params
        if are_foreign(self.dispatch.do_orm_execute):
            return statement, params  # they are told of what is sent, and may change it
        given = statement._execution_options
        if options:
            given = {**given, **options}
        return asker.answer(self, statement, params, given) or (statement, params)


def _are_defaults(options: dict[str, Any]) -> bool:
    """Whether these options of a get ask for nothing; with_for_update={} is a lock."""
    return all(value is None or value is False or value is NO_OPTIONS for value in options.values())
