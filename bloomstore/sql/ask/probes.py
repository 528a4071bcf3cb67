"""Lookups without a session: plugin.probe for one value, plugin.partition for many.

In: a column, values, and perhaps the connection whose own writes count too. Out: an Answer, or the
values in two lists. Nothing is sent for the lookup itself; a guard with an outbox reads that.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection

from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.bulk import others_than, possibly_present
from bloomstore.sql.ask.eligibility import Eligibility
from bloomstore.sql.ask.listened_engines import ListenedEngines
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.guard_set import Guards


class Probes:
    """The lookups of one plugin that come from no session."""

    def __init__(self, guards: Guards, eligibility: Eligibility, engines: ListenedEngines) -> None:
        self._guards = guards
        self._eligibility = eligibility
        self._engines = engines

    def probe(self, column: Any, value: Any, connection: Connection | None) -> Answer:
        """The answer for one value. Raises SpecError if the column has no guard."""
        guard = self._guards.of_columns(column)
        if why := self._why_not(guard, connection):
            return guard.unknown(why)
        return guard.ask(value, self._own_writes(connection))

    def partition(
        self, column: Any, values: list[Any], connection: Connection | None
    ) -> tuple[list[Any], list[Any]]:
        """(values that are certainly absent, all others), each in their order."""
        guard = self._guards.of_columns(column)
        if self._why_not(guard, connection):
            return [], values
        present = possibly_present(guard, values, self._own_writes(connection))
        return others_than(present, values), present

    def _why_not(self, guard: ActiveGuard, connection: Connection | None) -> str:
        """Why the guard cannot answer; "" if it can. Reads its outbox, if it has one."""
        if connection is not None:
            why = self._eligibility.why_not_on(connection)
        else:
            why = next(filter(None, map(self._eligibility.comparisons.why_not, self._engines)), "")
        return why or ("" if guard.feed is None else guard.feed.catch_up(connection))

    def _own_writes(self, connection: Connection | None) -> Any:
        return None if connection is None else self._eligibility.pending_of_connection(connection)
