"""The keys that one transaction has written and not yet committed; it belongs to its connection.

A Pending ends with the transaction or with the connection's return to the pool, whichever comes
first. Keys stay in it until the commit, and lookups of the same transaction ask it first. A
transaction that is rolled back leaves none of its keys in a filter.

Keys that the server makes do not exist yet when a statement is sent. The statement waits here, one
at a time, and its keys are read when the next statement is sent, at the next lookup, or at the end.
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
    """Keys by guard, guards with unknown keys and the reason, and deleted rows by guard."""

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
        # Protects everything below: the thread that ceases to listen adds the keys of all others.
        self.lock = threading.RLock()
        self.keys: dict[ActiveGuard, set[Key]] = {}
        self.unknown: dict[ActiveGuard, str | Reason] = {}
        self.deleted: dict[ActiveGuard, int] = {}
        # Statements with their plans (None for text), and the version of the guards at the first.
        self.looked_at: dict[Any, WritePlan | None] = {}
        self.version = 0
        self.transaction: Callable[[], Any] = lambda: None  # a weak reference
        self.connection: Callable[[], Any] = lambda: None
        # The context of the last collected statement; `waiting` keeps it alive until it is read.
        self._context: Callable[[], Any] = lambda: None
        self.waiting: tuple[WritePlan, Any] | None = None
        self.is_meddled = False  # other listeners may have changed the connection's settings

    def __bool__(self) -> bool:
        return bool(self.keys or self.unknown or self.waiting or self.looked_at)

    @property
    def context(self) -> Any:
        """The context of the statement that was collected last, if it is alive."""
        return self._context()

    def waits_for(self, context: Any) -> bool:
        """Whether the keys that the server makes for this statement are still to be read."""
        return self.waiting is not None and self.waiting[1] is context

    def fails(self, *, has_written: bool) -> None:
        """The waiting statement has failed; `has_written`: some of its rows may be there."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None and has_written:
            for guard, _ in waiting[0].made:
                self.unknown[guard] = "a statement failed and may have written rows"

    def sees(self, plan: WritePlan, context: Any) -> None:
        """Collects the keys of a statement that is about to be sent."""
        self.resolve()
        self._context = weakref.ref(context)
        if plan.made or plan.deleted_from:
            self.waiting = plan, context
        self._collect(plan.sent, context)

    def concerns(self, statement: Any, plan: WritePlan | None, version: int) -> None:
        """Remembers what a statement writes, as guards of this version understand it."""
        if not self.looked_at:
            self.version = version
        self.looked_at[statement] = plan

    def resolve(self) -> None:
        """Reads the keys and the number of rows that the server has made of the last statement."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            plan, context = waiting
            self._collect(plan.made, context)
            for guard in plan.deleted_from:
                count = max(context.rowcount or 0, 0)
                self.deleted[guard] = self.deleted.get(guard, 0) + count

    def make_durable(self) -> None:
        """Adds the keys and raises the fences, right before the rows become visible to others."""
        self.resolve()
        if self.unknown or self.deleted or len(self.keys) > 1:
            self._make_all_durable()
        else:
            for guard, keys in self.keys.items():  # mostly one
                if keys and not (guard.doubt and guard.is_fed):
                    guard.add(keys)
        self.clear()

    def _make_all_durable(self) -> None:
        for guard, reason in self.unknown.items():
            if reason is ALTERED or not guard.is_fed:  # else an outbox has the keys
                guard.fence(reason)
        known = {
            guard: keys
            for guard, keys in self.keys.items()
            if keys and guard not in self.unknown and not (guard.doubt and guard.is_fed)
        }
        if len(known) > 1 and not any(guard.doubt for guard in known):
            # After one of these errors each guard is served by itself: one filter was replaced, or
            # one key cannot be added.
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
        """Forgets everything: the transaction was rolled back, or its keys are durable."""
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
