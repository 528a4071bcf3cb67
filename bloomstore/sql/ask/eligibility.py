"""The one place that decides whether a lookup may be answered here instead of being sent.

In: a session, a guard, and the mapper or the statement that would be sent. Out: a Permit with the
keys that the session's own transaction has written, or None: the lookup is sent. It is sent
  1. inside plugin.bypass(), and where the session itself would raise an error: it has failed,
     is closed for good, or must be begun first;
  2. where another session's open transaction may be this one too (a pool of one connection);
  3. in a transaction that began before the plugin listened, that has several databases, or whose
     connection has changed settings or another plugin; or whose database was not compared recently
     and cannot be compared now (compared_database.py);
  4. at the levels SERIALIZABLE and READ UNCOMMITTED, and with a translated schema;
  5. where another listener may change the lookup on its way, or the connection
     (foreign_listeners.py);
  6. while a flush is under way that the lookup would have to wait for;
  7. if the guard has an outbox that cannot be read now.
Under REPEATABLE READ and on SQLite the policy `auto` answers only after the transaction has sent a
statement, because a SELECT that is not sent opens no snapshot.

Everything that stays as it is while a transaction is open is cached in TransactionFacts; repeated
`get`s need not come here at all (permits.py).

Not here: which statements a guard can answer (select_plan.py), and what it answers (guard.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session

from bloomstore.sql.ask.compared_database import Comparisons, Ticker
from bloomstore.sql.ask.session_facts import TransactionFacts, bind_of, shares_connections
from bloomstore.sql.attached import CHANGED, SENT, facts_of, forget_catch_up, is_bypassed
from bloomstore.sql.capture.capture import Capture
from bloomstore.sql.capture.pending import Pending
from bloomstore.sql.databases.isolation import allows_skipping, has_snapshots
from bloomstore.sql.guards import foreign_listeners
from bloomstore.sql.guards.connection_settings import UNSETTLED
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.sqlalchemy_private import is_clean, is_flushing, is_idle

NO_OPTIONS: Mapping[str, Any] = {}


class Permit(NamedTuple):
    """Permission to answer a lookup, with the writes of the lookup's own transaction."""

    own_writes: Pending | None


class Eligibility:
    """Whether the lookups of one plugin's sessions may be answered. Safe in several threads."""

    def __init__(self, policy: str, capture: Capture, comparisons: Comparisons) -> None:
        self.policy = policy
        # None while writes go unseen; another object each time the plugin begins to listen.
        self.listening: object | None = None
        # Another object whenever the plugin begins or ceases to listen, and when the databases of
        # open transactions must be compared again.
        self.trust: object = object()
        self.settings = capture.settings
        self.comparisons = comparisons
        self.pending_of_connection = capture.pending
        self.written = capture.written  # by weak reference to a connection's loan
        self._listens_to = capture.listens_to
        self._ticker = Ticker(self, comparisons.seconds)

    def listens(self, *, is_on: bool) -> None:
        """Called when the plugin begins to listen to an engine, or has ceased to listen to any."""
        self.listening = (self.listening or object()) if is_on else None
        self.trust = object()

    # Sessions ------------------------------------------------------------------------

    def permit(
        self,
        session: Session,
        guard: ActiveGuard,
        mapper: Any,
        statement: Any = None,
        options: Mapping[str, Any] = NO_OPTIONS,
        listeners: Iterable[Any] | None = None,
    ) -> Permit | None:
        """A permit for a `get` of the mapper's class, or for a statement; None: send it.

        `listeners`: of do_orm_execute, if not all of them are still to be called. Before a
        statement the session is flushed, if sending it would have done so; a `get` is sent then.
        """
        heard = session.dispatch.do_orm_execute if listeners is None else listeners
        if foreign_listeners.are_foreign(heard):
            return None  # foreign listeners hear of every statement that is sent, and may change it
        if "schema_translate_map" in options:
            return None
        if not self._may_answer(session, guard, mapper, statement):
            return None
        if not is_clean(session):
            if statement is None:
                return None
            own = getattr(session, "execution_options", None)  # 2.0 has none
            if {**(own or {}), **options}.get("autoflush", session.autoflush):
                if is_flushing(session):
                    return None
                session.flush()
                # The flush may have begun the transaction.
                if not self._may_answer(session, guard, mapper, statement):
                    return None
        if guard.feed is not None and not self._catches_up(session, guard, mapper, statement):
            return None
        return Permit(self._own_writes(session, mapper, statement))

    def permit_anew(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any
    ) -> Permit | None:
        """A permit as of now for a statement that was sent: an outbox is read once more."""
        if guard.feed is not None:
            if not self._may_answer(session, guard, mapper, statement):
                return None
            arguments = {"mapper": mapper, "clause": statement}
            forget_catch_up(session.connection(bind_arguments=arguments))
            if not self._catches_up(session, guard, mapper, statement):
                return None
        return Permit(self._own_writes(session, mapper, statement))

    def _may_answer(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any
    ) -> bool:
        try:
            bind = bind_of(session, mapper, statement)
        except UnboundExecutionError:
            return False
        # SQLAlchemy 2.0 has no options of a session.
        if "schema_translate_map" in getattr(session, "execution_options", ()):
            return False
        facts: TransactionFacts | None = facts_of(session)
        if is_bypassed(session) or not session.is_active or self._is_shared(facts, bind):
            return False
        if foreign_listeners.may_rewrite(bind if facts is None else facts.connection):
            return False
        if facts is None:
            may_answer = self._may_answer_idle(session, bind)
        else:
            may_answer = self._may_answer_open(session, facts, bind)
        return may_answer and not self._may_be_another(facts, guard, bind)

    def _may_answer_idle(self, session: Session, bind: Any) -> bool:
        """For a session without a connection of its own."""
        return (
            is_idle(session)  # else it began unheard, perhaps in a savepoint, or would raise
            and self.is_usable(bind)
            and (self.policy != "auto" or not has_snapshots(bind))
            and self.settings.are_known(session, bind)
        )

    def _may_answer_open(self, session: Session, facts: TransactionFacts, bind: Any) -> bool:
        """For a session that has a connection."""
        connection = facts.connection
        options = connection.get_execution_options()
        if facts.options is not options and facts.may_skip is not False:
            facts.options, facts.may_skip = options, self.is_usable(connection)
        if not facts.may_skip or not facts.hold() or facts.owner is not self:
            return False
        if bind is not connection and bind.engine is not connection.engine:
            return False
        if self.policy == "auto" and not (SENT in facts.info or not has_snapshots(connection)):
            return False
        if facts.is_undisturbed and CHANGED not in facts.info:
            return True
        is_known = self.settings.are_known(session, connection)
        facts.is_undisturbed = is_known and CHANGED not in facts.info
        return is_known

    def _is_shared(self, facts: TransactionFacts | None, bind: Any) -> bool:
        """Whether another session's open transaction, with writes, may also be this session's."""
        if not self.written or not shares_connections(bind.engine):
            return False
        mine = None if facts is None else facts.reference
        return any(bool(self.written.get(each)) for each in list(self.written) if each != mine)

    def is_usable(self, bind: Any) -> bool:
        """Whether the plugin sees the writes of an engine, at a level that allows answers."""
        return self._listens_to(bind) and allows_skipping(bind)

    def _may_be_another(
        self, facts: TransactionFacts | None, guard: ActiveGuard, bind: Any
    ) -> bool:
        """Whether the session may ask another database than the one that the guard has seen."""
        if facts is not None and facts.trust is self.trust:
            return False
        trust = self.trust  # before it is compared
        if why := self.comparisons.why_not(bind if facts is None else facts.connection):
            guard.unknown(why)
        elif facts is not None and self._ticker.want():
            facts.trust = trust
            facts.permits.clear()
        return bool(why)

    def _catches_up(
        self, session: Session, guard: ActiveGuard, mapper: Any, statement: Any
    ) -> bool:
        """Whether the session's transaction, which begins now, has read the guard's outbox."""
        assert guard.feed is not None
        arguments = {"mapper": mapper, "clause": statement}
        if why := guard.feed.catch_up(session.connection(bind_arguments=arguments)):
            guard.unknown(why)
        return not why

    def _own_writes(self, session: Session, mapper: Any, statement: Any) -> Pending | None:
        facts: TransactionFacts | None = facts_of(session)
        bind = bind_of(session, mapper, statement) if facts is None else facts.connection
        return self.pending_of_connection(bind) if isinstance(bind, Connection) else None

    # Connections ---------------------------------------------------------------------

    def why_not_on(self, connection: Connection) -> str:
        """Why a lookup on this connection cannot be answered; "" if it can."""
        if not self._listens_to(connection):
            return "the lookup uses a connection that the plugin does not listen to"
        if "schema_translate_map" in connection.get_execution_options():
            return "the lookup uses a connection that translates schemas"
        if not self.settings.hold(connection):
            return UNSETTLED
        return self.comparisons.why_not(connection)
