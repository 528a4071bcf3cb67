"""A small guarded table, and statements to try on it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

import bloomstore
from bloomstore.sql import BloomPlugin, Guard


def table_of(type_: Any, **guard: Any) -> sa.Table:
    return sa.Table(
        "trapped",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("c", type_, info={"bloomstore": Guard(**guard)}),
    )


def built(store: bloomstore.Store, engine: sa.Engine, metadata: sa.MetaData) -> BloomPlugin:
    metadata.create_all(engine)
    plugin = BloomPlugin(store, metadata)
    plugin.listen(engine)
    plugin.build(engine)
    return plugin


def text_type(kind: str) -> sa.String:
    return sa.String(20, collation="utf8mb4_bin" if kind == "mariadb" else None)


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def rows_from(first: int) -> list[dict[str, Any]]:
    return [{"id": number, "email": f"{number}@auto"} for number in range(first, first + 2500)]
