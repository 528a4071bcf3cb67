"""A table whose guards are fed by outboxes, and the ways in which tests write to it and ask."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import bloomstore
from bloomstore.sql import Answer, BloomPlugin, Guard
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import Outbox
from tests.sql.support.models import Text


class FedBase(DeclarativeBase):
    """All of them."""


class Parcel(FedBase):
    """Written by anybody."""

    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(feed="outbox")}
    )
    code: Mapped[str | None] = mapped_column(
        Text, info={"bloomstore": Guard(feed="outbox", staleness=30)}
    )
    note: Mapped[str | None] = mapped_column(sa.String(20))


COLUMNS = ("id", "code")


def make(engine: sa.Engine) -> None:
    """The table, bloomstore's tables, and an outbox for each guard."""
    migrate.upgrade(engine.url.render_as_string(hide_password=False))
    FedBase.metadata.create_all(engine)
    make_outboxes(engine)


def make_outboxes(engine: sa.Engine) -> None:
    """An outbox for each guard."""
    with engine.begin() as connection:
        for column in COLUMNS:
            outbox = Outbox(f"parcels.{column}", "parcels", [column], None, engine.dialect)
            for statement in outbox.create():
                connection.exec_driver_sql(statement)


def unmake(engine: sa.Engine) -> None:
    """Everything of `make` is gone: functions of PostgreSQL outlive their tables."""
    with engine.begin() as connection:
        for column in COLUMNS:
            outbox = Outbox(f"parcels.{column}", "parcels", [column], None, engine.dialect)
            for statement in outbox.drop():
                connection.exec_driver_sql(statement)


def listening(store: bloomstore.Store, engine: sa.Engine) -> BloomPlugin:
    plugin = BloomPlugin(store, FedBase.metadata)
    plugin.listen(engine)
    return plugin


def write(engine: sa.Engine, *statements: str) -> None:
    """By a raw cursor: nobody could see it."""
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        for statement in statements:
            cursor.execute(statement)
        raw.commit()
    finally:
        raw.close()


def insert(number: int, code: str) -> str:
    return f"INSERT INTO parcels (id, code) VALUES ({number}, '{code}')"


def asked(engine: sa.Engine, plugin: BloomPlugin, column: Any, value: Any) -> Answer:
    """In a transaction of its own."""
    with engine.connect() as connection:
        return plugin.probe(column, value, connection=connection)
