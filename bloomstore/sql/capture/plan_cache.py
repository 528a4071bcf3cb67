"""Which plan a compiled statement or a text has, cached: most statements are sent many times.

In: statements as SQLAlchemy has compiled them, or text. Out: the plan of write_plan.py, or the Text
of databases/sql_text.py. A new guard makes all plans of writes void; reads stay reads.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Insert
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import CompoundSelect, Delete, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from bloomstore.sql.capture.write_plan import READS, WritePlan, plan_writes
from bloomstore.sql.databases.sql_text import Text
from bloomstore.sql.guards.guard_set import Guards

PLANS_CACHED = 5000  # SQLAlchemy itself caches 500 compiled statements per engine
READS_CACHED = 250  # alive, where SQLAlchemy may have dropped them: a few megabytes
TEXTS_CACHED = 1000  # an application has few different texts; one that has many pays for each
_STRUCTURED = (Insert, Update, Delete, Select, CompoundSelect, FunctionElement)


class WritePlans:
    """The plans of one Capture. Safe in several threads."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        # By the id of the compiled statement, with a weak reference that says whose id it is.
        self._plans: dict[int, tuple[weakref.ref[Any], WritePlan | None]] = {}
        # Compiled statements that never write, whatever guards there are: most are of this kind.
        self.reads: set[Any] = set()
        self._texts: dict[tuple[str, str], Text] = {}  # by the kind of database, too

    def forget(self) -> None:
        """A new guard changes old plans, and those that other threads are making now."""
        self._plans = {}

    def of(self, compiled: Any) -> WritePlan | None:
        """The plan of a compiled statement where names lead as usual; None: treat it as text."""
        reference, plan = self._plans.get(id(compiled), (None, None))
        if reference is None or reference() is not compiled:
            plans = self._plans  # by the time the plan is made it may be another one
            plan = self.make(compiled, {})
            if len(plans) >= PLANS_CACHED:
                plans.clear()
            plans[id(compiled)] = weakref.ref(compiled), plan
        if plan is READS:
            if len(self.reads) >= READS_CACHED:
                self.reads.clear()
            self.reads.add(compiled)
        return plan

    def make(
        self, compiled: Any, translated: Mapping[Any, Any], *, anywhere: bool = False
    ) -> WritePlan | None:
        """The plan where schemas are translated, or where names may lead anywhere; not cached."""
        if not isinstance(compiled, SQLCompiler) or not isinstance(compiled.statement, _STRUCTURED):
            return None
        guards = self._guards
        return plan_writes(compiled, lambda table: guards.written(table, translated, anywhere))

    def text(self, dialect: Dialect, statement: str) -> Text:
        """The effects that a text may have."""
        key = dialect.name, statement
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= TEXTS_CACHED:
                self._texts.clear()
            text = self._texts[key] = Text(statement, dialect.name)
        return text
