"""The object that a plugin attaches to its sessions: it answers lookups and hears session events.

In: events of sessions. A GuardedSession calls `gets` and `selects` itself; other sessions, and
policies other than `explicit`, come through the event do_orm_execute.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Connection, Result
from sqlalchemy.engine.result import null_result
from sqlalchemy.orm import ORMExecuteState, Session

from bloomstore.sql.ask.compared_database import Comparisons
from bloomstore.sql.ask.eligibility import Eligibility
from bloomstore.sql.ask.gets import Gets
from bloomstore.sql.ask.option import is_guarded
from bloomstore.sql.ask.plan_cache import Plans
from bloomstore.sql.ask.selects import Selects
from bloomstore.sql.ask.session_facts import TransactionFacts
from bloomstore.sql.ask.shadow import Shadow
from bloomstore.sql.attached import ASKER, SENT, TRANSACTION, facts_of, is_bypassed
from bloomstore.sql.capture.capture import Capture
from bloomstore.sql.capture.returning import with_returning
from bloomstore.sql.guards.foreign_listeners import are_foreign
from bloomstore.sql.guards.guard_set import Guards
from bloomstore.sql.sqlalchemy_private import remaining_listeners


class Asker:
    """The lookups of one plugin."""

    def __init__(
        self, policy: str, guards: Guards, capture: Capture, comparisons: Comparisons
    ) -> None:
        self.policy = policy
        self.guards_of = guards.of
        self.eligibility = Eligibility(policy, capture, comparisons)
        self.gets = Gets(self.eligibility, guards.of)
        self._plans = Plans(guards.of)
        self.selects = Selects(self.eligibility, self._plans)
        self._shadow = Shadow(self.eligibility, self._plans)

    def forget_plans(self) -> None:
        """A new guard changes which statements and classes have one."""
        self._plans.forget()
        self.gets.forget()

    def after_begin(self, session: Session, transaction: Any, connection: Connection) -> None:
        """Remembers the connection of the session's transaction."""
        if session.info.get(ASKER, self) is not self:
            return  # the session asks the plugin that listened last
        facts: TransactionFacts | None = facts_of(session)
        if facts is None:
            facts = session.info[TRANSACTION] = TransactionFacts(self.eligibility, connection)
            facts.info.pop(SENT, None)
        elif facts.connection is not connection:
            facts.may_skip = False  # several databases in one transaction
        facts.permits.clear()  # those of the outer transaction, if this is a nested one

    def after_transaction_end(self, session: Session, transaction: Any) -> None:
        """Forgets the facts with the outermost transaction."""
        if transaction.parent is None:
            session.info.pop(TRANSACTION, None)

    def do_orm_execute(self, state: ORMExecuteState) -> Result[Any] | None:
        """Answers a statement that is about to be sent; None lets it be sent."""
        statement, parameters = state.statement, state.parameters
        if isinstance(parameters, list):
            if not state.is_insert:
                return None
            returning = with_returning(state.session, statement, parameters, self.guards_of)
            if returning is None:
                return None
            state.invoke_statement(statement=returning).all()
            return null_result()
        if not state.is_select or state.is_column_load or is_bypassed(state.session):
            return None
        if self.policy == "explicit" and not is_guarded(statement):
            return None
        if state.bind_arguments.keys() - {"mapper", "clause"}:
            return None  # under `explicit` only statements with the option Guarded() are answered
        listeners = remaining_listeners(state)
        if are_foreign(listeners):
            return None  # cheaper to check before a plan is made
        if self.policy == "shadow":
            return self._shadow.compare(state, listeners)
        answer = self.selects.answer(
            state.session, statement, parameters, state.execution_options, listeners
        )
        if answer is None or isinstance(answer, Result):
            return answer
        return state.invoke_statement(statement=answer[0], params=answer[1])
