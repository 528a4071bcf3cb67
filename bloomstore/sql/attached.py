"""All state that bloomstore attaches to objects of SQLAlchemy, by name, with typed accessors.

    on                      name                       value
    session.info            bloomstore                 the Asker of the plugin it asks (ask/)
                            bloomstore/transaction     TransactionFacts, while one is open (ask/)
                            bloomstore/bypass          present inside plugin.bypass()
    connection.info         bloomstore/sent            a statement was sent in this transaction
                            bloomstore/changed         its settings may have changed (guards/)
                            bloomstore/left            Pending that the pool may commit (capture/)
                            bloomstore/connecting      other connect listeners may still run
                            bloomstore/moving          outbox positions not yet on disk (outbox/)
    a connection's loan     OwnWritesByLoan            Pending of its transaction (capture/)
    a transaction           _builds                    builds whose outbox it has read (outbox/)
    an engine               PLUGINS                    the plugin that its URL names
    a session class         _bloomstore_own            made by session_factories.py
    a dialect's method      bloomstore_layer           made by dialect_patch.py

A connection's `info` belongs to the driver's connection and outlives its loans from the pool; a
loan is the object that the pool lends, `connection.connection`, and ends when it is given back.

Not here: the classes of the values. Rooms above this file own them, so accessors that hand one of
them out return Any, and callers name the type.
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

T = TypeVar("T")

# Names, for callers that cannot afford a call. -----------------------------------------

ASKER = "bloomstore"
TRANSACTION = "bloomstore/transaction"
BYPASS = "bloomstore/bypass"
SENT = "bloomstore/sent"
CHANGED = "bloomstore/changed"
LEFT = "bloomstore/left"
CONNECTING = "bloomstore/connecting"
MOVING = "bloomstore/moving"
OWN_CLASS = "_bloomstore_own"
LAYER = "bloomstore_layer"

# Sessions ------------------------------------------------------------------------------


def asker_of(session: Session) -> Any:
    """The Asker of the plugin that the session asks, or None."""
    return session.info.get(ASKER)


def facts_of(session: Session) -> Any:
    """The TransactionFacts of the session's open transaction, or None."""
    return session.info.get(TRANSACTION)


def is_bypassed(session: Session) -> bool:
    """Whether plugin.bypass() is in force."""
    return BYPASS in session.info


# Connections ---------------------------------------------------------------------------


def note_sent(connection: Connection) -> None:
    """Notes that a statement was sent on the connection."""
    connection.info[SENT] = True


def settings_change_of(connection: Connection) -> Any:
    """The Changed of a connection whose settings may have changed, or None."""
    return connection.info.get(CHANGED)


class OwnWritesByLoan(Generic[T]):
    """Values by loan of a connection; they are gone when the loan is given back."""

    def __init__(self) -> None:
        self._values: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()
        # The same by weak reference: a lookup here is faster than one in Python.
        self.by_reference: dict[Any, T] = self._values.data  # type: ignore[attr-defined]

    def of(self, loan: Any) -> T | None:
        """The value of this loan."""
        return self.by_reference.get(weakref.ref(loan))

    def put(self, loan: Any, value: T) -> None:
        """Attaches a value to the loan."""
        self._values[loan] = value

    def values(self) -> list[T]:
        """The values of all present loans."""
        return list(self._values.values())


# Transactions --------------------------------------------------------------------------

_builds: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def has_caught_up(transaction: Any, build: str) -> bool:
    """Whether the transaction has read the outbox for this build."""
    return build in _builds.get(transaction, ())


def mark_caught_up(transaction: Any, build: str) -> None:
    """Notes that the transaction has read the outbox for this build."""
    _builds.setdefault(transaction, set()).add(build)


def forget_catch_up(connection: Connection) -> None:
    """Forgets the reading of outboxes: the transaction has written since, or must read again."""
    if _builds and (transaction := connection.get_transaction()) is not None:
        _builds.pop(transaction, None)


# Engines -------------------------------------------------------------------------------

PLUGINS: weakref.WeakKeyDictionary[Engine, Any] = weakref.WeakKeyDictionary()
