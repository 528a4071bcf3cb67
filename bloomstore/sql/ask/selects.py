"""Answers SELECTs with an empty result, a statement with fewer keys in its IN, or None (send it).

In: a session, a statement and its parameters. The guard is asked once. It is asked first where
nothing has to be flushed or caught up before: then a key that may be there costs no permit, which
would make a query on SQLite 5 % slower. Otherwise the permit comes first, because a flush may wait
for the commit of another transaction, whose rows the answer must know.
"""

from __future__ import annotations

import collections.abc as abc
from typing import Any

from sqlalchemy.engine import Result
from sqlalchemy.orm import Session

from bloomstore import Filter
from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.bulk import possibly_present
from bloomstore.sql.ask.eligibility import Eligibility
from bloomstore.sql.ask.option import Guarded
from bloomstore.sql.ask.plan_cache import Plans
from bloomstore.sql.ask.select_plan import ReadPlan, with_values
from bloomstore.sql.sqlalchemy_private import is_clean, options_of, subject_of


class Selects:
    """The SELECTs of one plugin's sessions."""

    def __init__(self, eligibility: Eligibility, plans: Plans) -> None:
        self._eligibility = eligibility
        self._plans = plans

    def answer(
        self,
        session: Session,
        statement: Any,
        parameters: Any,
        options: abc.Mapping[str, Any],
        listeners: abc.Iterable[Any] | None = None,
    ) -> Result[Any] | tuple[Any, Any] | None:
        """An empty result, or a statement and parameters with fewer keys, or None: send it.

        `listeners`: see Eligibility.permit.
        """
        plan, value = self._plans.of(statement, parameters)
        if plan is None or (plan.is_list and not isinstance(value[1], abc.Collection)):
            return None  # an iterator would be used up
        guard = plan.guard
        lacking: Filter | None = None
        if not plan.is_list and guard.feed is None and is_clean(session):
            filter_ = guard.filter
            answer = guard.answer(value)
            if answer is Answer.MAYBE:
                guard.metrics.count(answer)
                return None
            lacking = filter_ if answer is Answer.ABSENT else None
        permit = self._eligibility.permit(
            session, guard, subject_of(statement), statement, options, listeners
        )
        if permit is None:
            return None
        if not plan.is_list:
            answer = guard.confirm(value, lacking, permit.own_writes)
            guard.metrics.count(answer)
            return _skipped(plan) if answer is Answer.ABSENT else None
        key, given = value
        values = given if isinstance(given, list) else list(given)
        present = possibly_present(guard, values, permit.own_writes)
        if len(present) == len(values):
            return None
        if not present:
            return _skipped(plan)
        return with_list(session, statement, plan, parameters, key, present)


def with_list(
    session: Session, statement: Any, plan: ReadPlan, parameters: Any, key: str, values: list[Any]
) -> tuple[Any, Any]:
    """The statement and its parameters with other values in the list whose bind has the key."""
    if parameters and key in parameters and not _may_use_elsewhere(session, statement, plan):
        return statement, {**parameters, key: values}
    return with_values(statement, key, values), parameters


def _skipped(plan: ReadPlan) -> Result[Any]:
    plan.guard.metrics.skipped_selects += 1
    return plan.empty()


def _may_use_elsewhere(session: Session, statement: Any, plan: ReadPlan) -> bool:
    """Whether options, relationships or listeners may bring a bind of the same name."""
    return (
        plan.has_entities
        or bool(session.dispatch.do_orm_execute)
        or not set(map(type, options_of(statement))) <= {Guarded}
    )
