"""Which `get`s a guard answers: those of a mapped class by its whole, guarded primary key.

In: a session, a mapped class and an identity. Out: an Answer, or None where the guard is not asked
and the `get` is sent. Answers are not counted here: the session counts what a `get` came to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Table, inspect
from sqlalchemy.orm import Session

from bloomstore import Filter
from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.eligibility import Eligibility
from bloomstore.sql.ask.permits import GetBeforeConnection, GetInTransaction
from bloomstore.sql.ask.session_facts import TransactionFacts, shares_connections
from bloomstore.sql.attached import CHANGED, facts_of
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import are_sent_alike, identity_class, is_disposed


class Gets:
    """The `get`s of one plugin's sessions."""

    def __init__(
        self, eligibility: Eligibility, guards_of: Callable[[Table], list[ActiveGuard]]
    ) -> None:
        self._eligibility = eligibility
        self._guards_of = guards_of
        self._entities: dict[Any, tuple[ActiveGuard, Any] | None] = {}
        # By mapped class, for sessions without a connection; and its guard for all others. Classes
        # whose guard has an outbox are not here.
        self.permits: dict[Any, GetBeforeConnection] = {}

    def forget(self) -> None:
        """Forgets which class has which guard: a new guard may belong to a class without one."""
        self._entities.clear()
        self.permits.clear()

    def guard_of(self, entity: Any) -> tuple[ActiveGuard, Any] | None:
        """The guard of the primary key of a mapped class, and its mapper; None: it has none."""
        pair = self._entities.get(entity)
        if entity not in self._entities or (pair and is_disposed(pair[1])):  # mapped again
            self.permits.pop(entity, None)
            pair = self._entities[entity] = self._find_guard(entity)
            if pair and pair[0].feed is None and self._eligibility.policy != "shadow":
                self.permits[entity] = GetBeforeConnection(*pair, self._eligibility)
        return pair

    def answer(
        self,
        session: Session,
        entity: Any,
        guard: ActiveGuard,
        mapper: Any,
        ident: Any,
        lacking: Filter | None = None,
    ) -> Answer | None:
        """The answer to a `get`; None: send it.

        `lacking`: a filter that lacks the key. It is asked again only if the guard has another one
        by now, or doubts it.
        """
        if type(ident) in (tuple, list, dict) and len(guard.declared.columns) == 1:
            return None  # a key of one column written as a tuple, a list or a dict
        identity = ident if type(ident) is tuple else (ident,)
        try:
            if (identity_class(mapper), identity, None) in session.identity_map:
                return None  # the session has the object, whatever the database has
        except TypeError:
            return None  # a composite key as a list or a dict, which cannot be hashed
        permit = self._eligibility.permit(session, guard, mapper)
        if permit is None:
            return None
        self._remember(session, entity, guard, mapper)
        if lacking is not None and ident not in guard.room:
            lacking = None  # the filter was asked for a key that the column cannot hold
        return guard.confirm(ident, lacking, permit.own_writes)

    def _remember(self, session: Session, entity: Any, guard: ActiveGuard, mapper: Any) -> None:
        """Makes a permit, so that the next `get` of the class need not be checked in full."""
        permit = self.permits.get(entity)
        if permit is None or self._eligibility.policy != "explicit":
            return
        facts: TransactionFacts | None = facts_of(session)
        if facts is None:
            permit.learn(session)
        elif (
            CHANGED not in facts.info  # then settings are compared each time
            and not session.in_nested_transaction()  # a savepoint may fail alone
            and not shares_connections(facts.connection.engine)
        ):
            facts.permits[entity] = GetInTransaction(session, guard, mapper, self._eligibility)

    def _find_guard(self, entity: Any) -> tuple[ActiveGuard, Any] | None:
        mapper = inspect(entity, raiseerr=False)
        if mapper is None or not hasattr(mapper, "primary_key"):
            return None
        if mapper.concrete or mapper.with_polymorphic is not None:
            return None
        key = tuple(mapper.primary_key)
        for guard in self._guards_of(key[0].table):
            declared = guard.declared.columns
            if [column.name for column in declared] == [column.name for column in key] and all(
                column.table is key[0].table and are_sent_alike(column.type, other.type)
                for column, other in zip(key, declared, strict=True)
            ):
                return guard, mapper
        return None
