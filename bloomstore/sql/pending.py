"""What one transaction has written and not yet committed: it belongs to its connection.

Kept in `connection.info`, so it ends with the transaction or with the connection's return to the
pool, whichever comes first. Keys stay here until the commit, so a rolled back transaction costs
nothing, and the transaction's own questions look here first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bloomstore.keys import Key

if TYPE_CHECKING:
    from bloomstore.sql.active import ActiveGuard


class Pending:
    """Keys by guard; guards with keys nobody knows, and why; deleted rows by guard."""

    __slots__ = ("deleted", "keys", "unknown")

    def __init__(self) -> None:
        self.keys: dict[ActiveGuard, set[Key]] = {}
        self.unknown: dict[ActiveGuard, str] = {}
        self.deleted: Counter[ActiveGuard] = Counter()

    def __bool__(self) -> bool:
        return bool(self.keys or self.unknown)

    def add(self, guard: ActiveGuard, key: Key) -> None:
        """One key of one guard."""
        self.keys.setdefault(guard, set()).add(key)

    def settle(self) -> None:
        """Makes everything durable: called right before the rows become visible to others."""
        for guard, reason in self.unknown.items():
            guard.fence(reason)
        known = [(guard, keys) for guard, keys in self.keys.items() if guard not in self.unknown]
        if len(known) == 1:
            guard, keys = known[0]
            guard.add(keys)
        elif known:
            with known[0][0].store.batch():
                for guard, keys in known:
                    guard.add(keys)
        for guard, count in self.deleted.items():
            guard.metrics.deleted += count
        self.clear()

    def clear(self) -> None:
        """Forgets everything: rolled back, or settled."""
        self.keys.clear()
        self.unknown.clear()
        self.deleted.clear()
