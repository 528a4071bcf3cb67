"""GuardedSession: asks the guards before SQLAlchemy does anything.

    session.scalars(select(User).where(User.email == "a@b.c").options(Guarded()))
    session.get(User, 42)

ABSENT means: no committed row at this moment, as a READ COMMITTED statement would see it, and none
of the own transaction. What is asked and when a guard steps aside is in asker.py.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Result
from sqlalchemy.engine.result import null_result
from sqlalchemy.orm import Session
from sqlalchemy.sql import Insert

from bloomstore.sql.asker import PLUGIN, Asker, Guarded, is_guarded

__all__ = ["Guarded", "GuardedSession"]


class GuardedSession(Session):
    """A session that asks before a statement is built (get, get_one) or executed (Guarded()).

    Session = sessionmaker(engine, class_=GuardedSession)
    plugin.listen(engine, Session)

    It needs no do_orm_execute event, which would cost each statement of the session some 5 %.
    """

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        """The object with this primary key, or None: without a query if it is surely absent."""
        asker: Asker | None = self.info.get(PLUGIN)
        if asker is None or (options and any(options.values())):  # get_one passes the defaults
            return super().get(entity, ident, **options)
        guard = asker.guard_of(entity)
        if guard is None:
            return super().get(entity, ident)
        maybe = guard.metrics.maybe
        if asker.policy != "shadow" and asker.may_skip_get(self, guard, ident):
            return None
        was_maybe = guard.metrics.maybe > maybe
        return asker.get_and_count(guard, ident, self, super().get, entity, was_maybe=was_maybe)

    def execute(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        asked = self._asked(statement, params, options)
        return asked if isinstance(asked, Result) else super().execute(*asked, **options)

    def scalars(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        asked = self._asked(statement, params, options)
        if isinstance(asked, Result):
            return asked.scalars()
        return super().scalars(*asked, **options)

    def scalar(self, statement: Any, params: Any = None, **options: Any) -> Any:
        """As in Session; a statement with Guarded() is sent only if it may have rows."""
        asked = self._asked(statement, params, options)
        return asked.scalar() if isinstance(asked, Result) else super().scalar(*asked, **options)

    def _asked(
        self, statement: Any, params: Any, options: dict[str, Any]
    ) -> Result[Any] | tuple[Any, Any]:
        """The result if it is known, or what to send."""
        asker: Asker | None = self.info.get(PLUGIN)
        if asker is None or asker.policy != "explicit":  # else the event does it
            return statement, params
        if isinstance(params, list):
            changed = (
                asker.with_returning(self, statement, params)
                if isinstance(statement, Insert)
                else None
            )
            if changed is None:
                return statement, params
            super().execute(changed, params, **options).all()
            return null_result()
        if options.get("bind_arguments") or not is_guarded(statement):
            return statement, params
        given = {**statement.get_execution_options(), **options.get("execution_options", {})}
        return asker.answer(self, statement, params, given) or (statement, params)
