"""The plan of each SELECT, cached by what the statement is made of.

In: a SELECT and its parameters. Out: the plan of select_plan.py and the value that it looks up.
Plans are cached by the statement's cache key, and those of the simplest statements by the objects
in it: computing a cache key takes about 15 us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table
from sqlalchemy.orm.util import LoaderCriteriaOption
from sqlalchemy.sql.elements import BinaryExpression, BindParameter

from bloomstore.sql.ask.select_plan import ReadPlan, is_transparent, plan_read
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import (
    cache_key_of,
    has_own_values,
    options_of,
    simple_parts,
)

PLANS_CACHED = 1000


@dataclass(frozen=True, slots=True)
class QuickPlan:
    """A plan found by the identity of the objects in a statement, and those objects."""

    plan: ReadPlan
    type: Any
    objects: list[Any]


class Plans:
    """The plans of one asker."""

    def __init__(self, guards_of: Callable[[Table], list[ActiveGuard]]) -> None:
        self._guards_of = guards_of
        self._plans: dict[Any, ReadPlan | None] = {}
        self._quick_plans: dict[tuple[int, ...], QuickPlan] = {}

    def forget(self) -> None:
        """A new guard makes old plans void."""
        self._plans.clear()
        self._quick_plans.clear()

    def of(self, statement: Any, parameters: Any) -> tuple[ReadPlan | None, Any]:
        """The plan, and the value it looks up; for IN the bind's key and the list."""
        if has_own_values(statement) or any(map(_may_widen, options_of(statement))):
            return None, None
        quick = self._quick(statement, parameters)
        if quick is not None:
            return quick
        key = cache_key_of(statement)
        if key is None:
            return None, None
        try:
            plan = self._plans[key.key]
        except KeyError:
            if len(self._plans) >= PLANS_CACHED:
                self._plans.clear()
            plan = plan_read(statement, key.bindparams, self._guards_of)
            self._plans[key.key] = plan
        values = None if plan is None else _values(plan, key.bindparams, parameters)
        if plan is None or values is None:
            return None, None
        if plan.is_list:
            return plan, (key.bindparams[plan.places[0]].key, values[0])
        return plan, values[0] if len(values) == 1 else tuple(values)

    def _quick(self, statement: Any, parameters: Any) -> tuple[ReadPlan, Any] | None:
        """The plan of select(...).where(column == value), found by the objects it is made of.

        A statement that has nothing but columns, one comparison and options needs no cache key.
        """
        parts = simple_parts(statement)
        if parts is None:
            return None
        columns, criteria = parts
        if len(criteria) != 1 or type(criteria[0]) is not BinaryExpression:
            return None
        left, right = criteria[0].left, criteria[0].right
        if type(right) is not BindParameter or right.callable is not None:
            return None
        key = (id(left), id(criteria[0].operator), *map(id, columns))
        quick = self._quick_plans.get(key)
        if quick is None:
            cache_key = cache_key_of(statement)
            plan = cache_key and plan_read(statement, cache_key.bindparams, self._guards_of)
            if not plan or plan.places != (0,):
                return None
            if len(self._quick_plans) >= PLANS_CACHED:
                self._quick_plans.clear()
            # The plan keeps the objects alive, so that no other can ever have their ids.
            quick = self._quick_plans[key] = QuickPlan(plan, right.type, [left, *columns])
        if right.type is not quick.type or right.expanding is not quick.plan.is_list:
            return None
        value = right.value
        if parameters:
            if type(parameters) is not dict or parameters.keys() != {right.key}:
                return None
            value = parameters[right.key]
        return quick.plan, (right.key, value) if quick.plan.is_list else value


def _may_widen(option: Any) -> bool:
    """Whether an option adds criteria that may be text (select_plan.py says why that matters)."""
    return isinstance(option, LoaderCriteriaOption) and (
        option.deferred_where_criteria or not is_transparent(option.where_criteria)
    )


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
