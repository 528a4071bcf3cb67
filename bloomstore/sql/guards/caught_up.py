"""The builds that an open transaction has caught up with, until it writes or ends.

outbox/ marks a transaction when it has read the missing keys, and capture/ forgets the mark when
the transaction writes: triggers may have changed keys that the first reading has not seen.
"""

from __future__ import annotations

import weakref
from typing import Any

from sqlalchemy.engine import Connection

_builds: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def has_caught_up(transaction: Any, build: str) -> bool:
    """Whether the transaction has read the outbox for this build."""
    return build in _builds.get(transaction, ())


def mark_caught_up(transaction: Any, build: str) -> None:
    """The transaction has read the outbox for this build."""
    _builds.setdefault(transaction, set()).add(build)


def forget_catch_up(connection: Connection) -> None:
    """The transaction has written, or asks anew: its earlier reading is not enough."""
    if _builds and (transaction := connection.get_transaction()) is not None:
        _builds.pop(transaction, None)
