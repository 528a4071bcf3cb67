"""The policy `shadow`: every query is sent, and a row that a guard called absent raises an alarm.

In: a query about to be sent. Out: its result, or None to send it unchanged. A row for a key that
the guard calls absent is a false negative. A row that was committed between answer and query is
not: the guard has its key by then, so the guard is asked again before the alarm.
"""

from __future__ import annotations

import collections.abc as abc
import logging
from typing import Any

from sqlalchemy.engine import Result
from sqlalchemy.orm import ORMExecuteState

from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.bulk import others_than, possibly_present
from bloomstore.sql.ask.eligibility import Eligibility, Permit
from bloomstore.sql.ask.plan_cache import Plans
from bloomstore.sql.ask.select_plan import ReadPlan
from bloomstore.sql.ask.selects import with_list
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import subject_of

log = logging.getLogger("bloomstore.sql")


class Shadow:
    """Compares the guards of one plugin with their database."""

    def __init__(self, eligibility: Eligibility, plans: Plans) -> None:
        self._eligibility = eligibility
        self._plans = plans

    def compare(self, state: ORMExecuteState, listeners: abc.Iterable[Any]) -> Result[Any] | None:
        """Asks the guard and the database; fences a guard that is wrong."""
        session, statement = state.session, state.statement
        plan, value = self._plans.of(statement, state.parameters)
        if plan is None:
            return None
        permit = self._eligibility.permit(
            session,
            plan.guard,
            subject_of(statement),
            statement,
            state.execution_options,
            listeners,
        )
        if permit is None:
            return None
        if plan.is_list:
            self._compare_list(state, plan, value, permit)
            return None
        if plan.guard.ask(value, permit.own_writes) is not Answer.ABSENT:
            return None
        frozen = state.invoke_statement().freeze()
        again = self._permit_anew(state, plan.guard) if frozen.data else None
        if again is not None and plan.guard.ask(value, again.own_writes) is Answer.ABSENT:
            _raise_alarm(plan.guard, value)
        return frozen()

    def _compare_list(
        self, state: ORMExecuteState, plan: ReadPlan, value: tuple[str, Any], permit: Permit
    ) -> None:
        """Asks the database for the absent keys of an IN alone: rows do not name their key."""
        key, given = value
        if not isinstance(given, abc.Collection):
            return  # an iterator would be used up
        values = list(given)
        absent = others_than(possibly_present(plan.guard, values, permit.own_writes), values)
        while absent:
            statement, parameters = with_list(
                state.session, state.statement, plan, state.parameters, key, absent
            )
            frozen = state.invoke_statement(statement=statement, params=parameters).freeze()
            again = self._permit_anew(state, plan.guard) if frozen.data else None
            if again is None:
                return
            present = possibly_present(plan.guard, absent, again.own_writes)
            if not present:
                _raise_alarm(plan.guard, absent)
                return
            absent = others_than(present, absent)

    def _permit_anew(self, state: ORMExecuteState, guard: ActiveGuard) -> Permit | None:
        return self._eligibility.permit_anew(
            state.session, guard, subject_of(state.statement), state.statement
        )


def _raise_alarm(guard: ActiveGuard, value: Any) -> None:
    guard.metrics.disagreements += 1
    log.critical("guard %s: FALSE NEGATIVE for %.200r", guard.name, value)
    guard.fence("shadow: the database has a row whose key the filter lacks")
