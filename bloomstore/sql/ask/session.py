"""GuardedSession: asks the guards before SQLAlchemy does anything.

    session.scalars(select(User).where(User.email == "a@b.c").options(Guarded()))
    session.get(User, 42)

ABSENT means that there is no committed row at this moment, as a READ COMMITTED statement would see
it, and none of the session's own transaction. eligibility.py lists when a lookup is sent anyway.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy.engine import Result
from sqlalchemy.engine.result import null_result
from sqlalchemy.orm import Session
from sqlalchemy.sql import Insert
from sqlalchemy.util import EMPTY_DICT as NO_OPTIONS

from bloomstore import Filter
from bloomstore.errors import BloomStoreError
from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.asker import Asker
from bloomstore.sql.ask.option import is_guarded
from bloomstore.sql.ask.session_facts import TransactionFacts, bypassed
from bloomstore.sql.attached import ASKER, TRANSACTION, asker_of
from bloomstore.sql.capture.returning import with_returning
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import OneExecution

ABSENT, MAYBE = Answer.ABSENT, Answer.MAYBE
TIMED = 64  # one in this many gets that are sent is timed


class GuardedSession(OneExecution):
    """A session that asks before a statement is built (get, get_one) or executed (Guarded()).

    Session = sessionmaker(engine, class_=GuardedSession)
    plugin.listen(engine, Session)

    It needs no do_orm_execute event, which would cost each statement of the session some 5 %.
    Put your own session classes before it: class Session(Logged, GuardedSession).
    """

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        order = cls.__mro__
        between = order[order.index(GuardedSession) + 1 : order.index(Session)]
        for other in between:
            if other is not OneExecution and "get" in vars(other):
                raise TypeError(
                    f"{cls.__name__}: GuardedSession would hide get of {other.__name__};"
                    f" name {other.__name__} before GuardedSession"
                )

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The object with this primary key, or None: without a query if it is surely absent."""
        # The usual case in one function: asking takes 0.5 us, an absent key as much more with a
        # connection and twice that without one. get_one passes options, all of them defaults.
        facts: TransactionFacts | None = self.info.get(TRANSACTION)
        permit = facts.permits.get(entity) if facts else None
        if not permit:
            asker: Asker | None = self.info.get(ASKER)
            permit = None if asker is None else asker.gets.permits.get(entity)
        if permit is None or (options and not _are_defaults(options)):
            return self._ask_and_get(entity, ident, options)
        guard: ActiveGuard = permit.guard
        filter_ = guard.filter  # before the doubt, see trust.py
        if type(ident) is not guard.own or guard.doubt:
            return self._ask_and_get(entity, ident, options)
        try:
            is_absent = ident not in filter_
        except BloomStoreError:
            return self._ask_and_get(entity, ident, options)
        if is_absent:
            if permit.allows(self, ident, facts):
                guard.metrics.skipped_gets += 1
                return None
            return self._ask_and_get(entity, ident, options, filter_)
        if (
            not (is_auto := permit.source.policy == "auto")
            and filter_.is_quick  # it is sound
            and guard.metrics.true_positives % TIMED
        ):
            instance = super().get(entity, ident)
            guard.metrics.count_get(instance is not None)
            return instance
        return self._get_after(guard, guard.answer_of_hit(filter_), entity, ident, is_auto)

    def _ask_and_get(
        self, entity: Any, ident: Any, options: dict[str, Any], lacking: Filter | None = None
    ) -> Any:
        """The general case; `lacking`: a filter that was asked and lacks the key."""
        asker: Asker | None = asker_of(self)
        pair = asker.gets.guard_of(entity) if asker and _are_defaults(options) else None
        if asker is None or pair is None or asker.policy == "shadow":
            return super().get(entity, ident, **options)
        guard, mapper = pair
        answer = asker.gets.answer(self, entity, guard, mapper, ident, lacking)
        if answer is ABSENT:
            guard.metrics.skipped_gets += 1
            return None
        return self._get_after(guard, answer, entity, ident, asker.policy == "auto")

    def _get_after(
        self, guard: ActiveGuard, answer: Answer | None, entity: Any, ident: Any, is_auto: bool
    ) -> Any:
        """Sends a get after this answer; after MAYBE it counts whether the row existed."""
        metrics = guard.metrics
        if answer is not MAYBE:
            if answer is not None:
                metrics.count(answer)
            return super().get(entity, ident)
        began = time.perf_counter()
        if is_auto:
            with bypassed(self):  # else the event of this policy would ask again
                instance = super().get(entity, ident)
        else:
            instance = super().get(entity, ident)
        metrics.count_time(time.perf_counter() - began)
        metrics.count_get(instance is not None)
        return instance

    def before_execution(
        self, statement: Any, parameters: Any, options: Any, bind_arguments: Any
    ) -> Result[Any] | tuple[Any, Any]:
        """The result if it is known, or the statement and parameters to send."""
        asker: Asker | None = asker_of(self)
        if asker is None or asker.policy != "explicit":  # else the event does it
            return statement, parameters
        if isinstance(parameters, list):
            return self._insert_returning(asker, statement, parameters, options, bind_arguments)
        if bind_arguments or not is_guarded(statement):
            return statement, parameters
        given = statement.get_execution_options()
        if options:
            given = {**given, **options}
        return asker.selects.answer(self, statement, parameters, given) or (statement, parameters)

    def _insert_returning(
        self, asker: Asker, statement: Any, rows: list[Any], options: Any, bind_arguments: Any
    ) -> Result[Any] | tuple[Any, Any]:
        """Sends a bulk INSERT with RETURNING, so that it returns the keys the server makes."""
        returning = (
            with_returning(self, statement, rows, asker.guards_of)
            if isinstance(statement, Insert)
            else None
        )
        if returning is None:
            return statement, rows
        self.send(returning, rows, options, bind_arguments).all()
        return null_result()


def _are_defaults(options: dict[str, Any]) -> bool:
    """Whether these options of a get ask for nothing; with_for_update={} is a lock."""
    return all(value is None or value is False or value is NO_OPTIONS for value in options.values())
