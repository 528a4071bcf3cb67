"""Counts the statements that an engine sends, and compares guards with the rows of their tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bloomstore.sql import Answer, BloomPlugin


class Sent:
    """The statements that an engine has sent."""

    def __init__(self, engine: sa.Engine) -> None:
        self.statements: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", self._hear)

    def _hear(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        self.statements.append(statement)

    def __call__(self) -> int:
        """How many since the last call."""
        count = len(self.statements)
        self.statements.clear()
        return count


def every_row_is_known(plugin: BloomPlugin, engine: sa.Engine) -> int:
    """Asserts that no guard says ABSENT for a committed row; returns how many were asked for."""
    asked = 0
    with engine.connect() as connection:
        for guard in plugin.guards.values():
            columns = guard.declared.columns
            rows = [row for row in connection.execute(sa.select(*columns)) if None not in row]
            values = [row[0] if len(columns) == 1 else tuple(row) for row in rows]
            column = columns if len(columns) > 1 else columns[0]
            for value in values[:30]:
                assert plugin.probe(column, value) != Answer.ABSENT, (guard.name, value)
            absent, _ = plugin.partition(column, values)  # many of them one by one take long
            assert absent == [], guard.name
            asked += len(values)
    return asked
