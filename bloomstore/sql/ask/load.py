"""Loads one object by its key, as Session.get does, with a statement that is made once.

SQLAlchemy makes a new SELECT for each get and computes its cache key: of 98 us that a get takes on
SQLite that is a quarter (of 139 us with SQLAlchemy 2.0 nearly half). Here it does so once for each
class; what it would execute is written down, and executed again with other keys. What differs from
the first time in any way is left to SQLAlchemy.

In: what Session._get_impl gives to a function that loads. Out: the object, or None.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from sqlalchemy.orm import Session, loading

# SQLAlchemy 2.0 has it without the underscore.
_names = ("_load_on_pk_identity", "load_on_pk_identity")
load_by_key: Any = next(getattr(loading, name) for name in _names if hasattr(loading, name))


class Sent(NamedTuple):
    """What was executed for one key, and what it was made from."""

    how: dict[str, Any]
    entity: Any
    statement: Any
    key: str  # of the bind
    options: dict[str, Any]


class Load:
    """Loads objects of one class whose key is a single value."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent: Sent | None = None

    def __call__(self, session: Session, statement: Any, identity: Any, **how: Any) -> Any:
        """The object with this identity, which the session does not have."""
        sent = self._sent
        if sent is None:
            sent = self._sent = _sent(statement, identity, how)
        if how != sent.how or statement._raw_columns[0] is not sent.entity:
            return load_by_key(session, statement, identity, **how)
        parameters = {sent.key: identity[0]}
        found: Any = session.execute(sent.statement, params=parameters, **sent.options)
        return found.unique().scalars().one_or_none()


def _sent(statement: Any, identity: Any, how: dict[str, Any]) -> Sent:
    recorder = _Recorder()
    load_by_key(recorder, statement, identity, **how)
    made, options = recorder.executed
    (key,) = options.pop("params")
    return Sent(how, statement._raw_columns[0], made, key, options)


class _Recorder:
    """Takes the place of a session and of its result."""

    executed: tuple[Any, dict[str, Any]]

    def execute(self, statement: Any, **options: Any) -> Self:
        self.executed = statement, options
        return self

    def unique(self) -> Self:
        return self

    def scalars(self) -> Self:
        return self

    def one(self) -> None:
        """Nobody looks at it."""
