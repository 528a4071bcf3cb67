"""The policy `shadow`: every query is sent, and what the guards would have left out is looked for.

In: a query on its way. Out: its result, or None: it is sent as it is. A row for a key that the
guard calls absent is a false negative. One that was committed in between is none: its guard knows
the key by now.
"""

from __future__ import annotations

import collections.abc as abc
import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Result
from sqlalchemy.orm import ORMExecuteState

from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.bulk import may_be_present, those_left_out
from bloomstore.sql.ask.select_plan import ReadPlan
from bloomstore.sql.capture.pending import UNUSABLE, Pending
from bloomstore.sql.guards.guard import ActiveGuard

if TYPE_CHECKING:
    from bloomstore.sql.ask.asker import Asker

log = logging.getLogger("bloomstore.sql")


def compare(asker: Asker, state: ORMExecuteState) -> Result[Any] | None:
    """Asks the guard and the database; fences the guard if it is wrong."""
    session, statement = state.session, state.statement
    plan, value = asker.plans.of(statement, state.parameters)
    if plan is None:
        return None
    pending = asker.pending_if_usable(session, statement, plan, state.execution_options)
    if pending is UNUSABLE:
        return None
    if plan.is_list:
        _compare_list(asker, state, plan, value, pending)
        return None
    if plan.guard.ask(value, pending) is not Answer.ABSENT:
        return None
    frozen = state.invoke_statement().freeze()
    if (
        frozen.data
        and _may_answer_again(asker, state, plan.guard)
        and plan.guard.ask(value, asker.pending_of(session)) is Answer.ABSENT
    ):
        _raise_alarm(plan.guard, value)
    return frozen()


def _compare_list(
    asker: Asker,
    state: ORMExecuteState,
    plan: ReadPlan,
    value: tuple[str, Any],
    pending: Pending | None,
) -> None:
    """Asks the database for the absent keys of an IN alone: there is no other way to tell rows."""
    key, given = value
    if not isinstance(given, abc.Collection):
        return  # an iterator would be used up
    values = list(given)
    absent = those_left_out(values, may_be_present(plan.guard, values, pending))
    while absent:
        statement, parameters = asker.with_list(
            state.session, state.statement, plan, state.parameters, key, absent
        )
        found = state.invoke_statement(statement=statement, params=parameters).freeze()
        if not found.data or not _may_answer_again(asker, state, plan.guard):
            return
        present = may_be_present(plan.guard, absent, asker.pending_of(state.session))
        if not present:
            _raise_alarm(plan.guard, absent)
            return
        absent = those_left_out(absent, present)


def _may_answer_again(asker: Asker, state: ORMExecuteState, guard: ActiveGuard) -> bool:
    """Whether the guard may be asked as of now, not as of the first answer of the transaction."""
    mapper = state.statement._propagate_attrs.get("plugin_subject")
    return guard.feed is None or asker.catches_up_again(
        state.session, guard, mapper, state.statement
    )


def _raise_alarm(guard: ActiveGuard, value: Any) -> None:
    guard.metrics.disagreements += 1
    log.critical("guard %s: FALSE NEGATIVE for %.200r", guard.name, value)
    guard.fence("shadow: the database has a row whose key the filter does not know")
