"""Writes to `users` by programs that declare no guard, and a moment in the middle of a write."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa

from bloomstore.sql import BloomPlugin


def reflected(engine: sa.Engine) -> sa.Table:
    return sa.Table("users", sa.MetaData(), autoload_with=engine, resolve_fks=False)


WRITES: dict[str, Any] = {
    "text": lambda on, _: on.execute(sa.text("INSERT INTO users (id, email) VALUES (7, 'x@y')")),
    "driver": lambda on, _: on.exec_driver_sql("INSERT INTO users (id, email) VALUES (7, 'x@y')"),
    "table": lambda on, table: on.execute(sa.insert(table).values(id=7, email="x@y")),
    "light": lambda on, _: on.execute(
        sa.insert(sa.table("users", sa.column("id"), sa.column("email"))).values(id=7, email="x@y")
    ),
}


def interrupted(plugin: BloomPlugin, act: Any) -> None:
    """Acts once, after the plugin has looked at the next statement and before it is sent."""
    sees = plugin._capture._sees
    done: list[int] = []

    def once(*given: Any) -> None:
        sees(*given)
        if not done:
            done.append(1)
            act()

    cast("Any", plugin._capture)._sees = once
