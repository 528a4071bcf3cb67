"""What one transaction has written and not yet committed: it belongs to its connection.

It ends with the transaction or with the connection's return to the pool, whichever comes first.
Keys stay here until the commit, and the transaction's own questions look here first. A rolled back
transaction leaves none of its keys in a filter.

Keys that the server makes are not there yet when a statement is sent. The statement waits here,
one at a time, and its keys are read when the next one is sent, when somebody asks, or at the end.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.errors import FilterFull, FilterNotFound, KeyTypeError, KeyValueError
from bloomstore.keys import Key
from bloomstore.sql.capture.write_plan import Source, WritePlan
from bloomstore.sql.capture.written_keys import keys_of
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.guards.guard import ActiveGuard

# An outbox has the keys of rows that were written, but not of a table that was altered.
ALTERED = Reason(ReasonCode.ALTERED, "perhaps altered by text or driver SQL")


class Pending:
    """Keys by guard; guards with keys nobody knows, and why; deleted rows by guard."""

    __slots__ = (
        "_context",
        "connection",
        "deleted",
        "is_meddled",
        "keys",
        "lock",
        "looked_at",
        "transaction",
        "unknown",
        "version",
        "waiting",
    )

    def __init__(self) -> None:
        # Protects everything below: who stops to listen settles what other threads have written.
        self.lock = threading.RLock()
        self.keys: dict[ActiveGuard, set[Key]] = {}
        self.unknown: dict[ActiveGuard, str | Reason] = {}
        self.deleted: dict[ActiveGuard, int] = {}
        # Statements with their plans (none for text), and the version of the guards at the first.
        self.looked_at: dict[Any, WritePlan | None] = {}
        self.version = 0
        self.transaction: Callable[[], Any] = lambda: None  # a weak reference: whose keys these are
        self.connection: Callable[[], Any] = lambda: None
        # The statement that was collected last; kept alive while the server's part is not read.
        self._context: Callable[[], Any] = lambda: None
        self.waiting: tuple[WritePlan, Any] | None = None
        self.is_meddled = False  # others may have changed the connection's settings

    def __bool__(self) -> bool:
        return bool(self.keys or self.unknown or self.waiting or self.looked_at)

    @property
    def context(self) -> Any:
        """Of the statement that was collected last, if it is alive."""
        return self._context()

    def waits_for(self, context: Any) -> bool:
        """Whether the server's part of this statement is not read yet."""
        return self.waiting is not None and self.waiting[1] is context

    def fails(self, *, has_written: bool) -> None:
        """The statement that is waited for has failed; perhaps some of its rows are there."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None and has_written:
            for guard, _ in waiting[0].made:
                self.unknown[guard] = "a statement failed after it may have written rows"

    def sees(self, plan: WritePlan, context: Any) -> None:
        """A statement is about to be sent."""
        self.resolve()
        self._context = weakref.ref(context)
        if plan.made or plan.deleted_from:
            self.waiting = plan, context
        self._collect(plan.sent, context)

    def concerns(self, statement: Any, plan: WritePlan | None, version: int) -> None:
        """What a statement writes, as far as guards of this version are concerned."""
        if not self.looked_at:
            self.version = version
        self.looked_at[statement] = plan

    def resolve(self) -> None:
        """Reads what the server has made of the last statement."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            plan, context = waiting
            self._collect(plan.made, context)
            for guard in plan.deleted_from:
                count = max(context.rowcount or 0, 0)
                self.deleted[guard] = self.deleted.get(guard, 0) + count

    def settle(self) -> None:
        """Makes everything durable: called right before the rows become visible to others."""
        self.resolve()
        if self.unknown or self.deleted or len(self.keys) > 1:
            self._settle_all()
        else:
            for guard, keys in self.keys.items():  # mostly one
                if keys and not (guard.doubt and guard.is_fed):
                    guard.add(keys)
        self.clear()

    def _settle_all(self) -> None:
        for guard, reason in self.unknown.items():
            if reason is ALTERED or not guard.is_fed:  # else an outbox has the keys
                guard.fence(reason)
        known = {
            guard: keys
            for guard, keys in self.keys.items()
            if keys and guard not in self.unknown and not (guard.doubt and guard.is_fed)
        }
        if len(known) > 1 and not any(guard.doubt for guard in known):
            # Then each by itself: one was replaced, or has a key that cannot be added.
            with contextlib.suppress(FilterNotFound, KeyTypeError, KeyValueError, FilterFull):
                with next(iter(known)).store.batch():
                    for guard, keys in known.items():
                        guard.filter.add_many(list(keys))
                known = {}
        for guard, keys in known.items():
            guard.add(keys)
        for guard, count in self.deleted.items():
            guard.count_deleted(count)

    def clear(self) -> None:
        """Forgets everything: rolled back, or settled."""
        self.keys.clear()
        self.unknown.clear()
        self.deleted.clear()
        self.looked_at.clear()
        self.waiting = None

    def _collect(
        self, written: tuple[tuple[ActiveGuard, tuple[Source, ...]], ...], context: Any
    ) -> None:
        for guard, sources in written:
            if guard in self.unknown:
                continue
            try:
                self.keys.setdefault(guard, set()).update(keys_of(guard, sources, context))
            except Unclear as why:
                self.unknown[guard] = str(why)
            except Exception as error:  # noqa: BLE001  types of the user, drivers, versions
                self.unknown[guard] = f"its keys could not be read: {error!r}"
