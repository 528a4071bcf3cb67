"""The record of a guard: what it holds, older and later versions, what it is compared with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bloomstore.sql import Answer
from bloomstore.sql.guards.record import VERSION, Record, read_record
from bloomstore.store.note_names import guard_note
from tests.sql.support.models import User
from tests.sql.support.tables import built, table_of

FULL = Record(
    "users",
    None,
    ["email"],
    form={"canon": "text/1"},
    database={"kind": "sqlite"},
    store="s",
    filter_number=7,
)


def test_a_record_comes_back_as_it_was_packed() -> None:
    assert Record.unpack(FULL.pack()) == FULL
    assert json.loads(FULL.pack())["version"] == VERSION


def test_a_record_without_a_version_is_one_of_version_1() -> None:
    fields = json.loads(FULL.pack())
    del fields["version"]
    assert Record.unpack(json.dumps(fields).encode()) == FULL


@pytest.mark.parametrize(
    "change",
    [
        {"table": "others"},
        {"schema": "elsewhere"},
        {"columns": ["email", "id"]},
        {"form": {"canon": "text/2"}},
        {"database": {"kind": "sqlite", "file": "9"}},
        {"store": "copy"},
        {"filter_number": 8},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_filter_that_was_built_for_something_else_differs(change: dict[str, Any]) -> None:
    assert not FULL.differs_from(FULL, has_outbox=False)
    assert FULL.differs_from(replace(FULL, **change), has_outbox=False)
    assert FULL.differs_from(FULL, has_outbox=True)  # its keys came in another way
    assert not replace(FULL, form={}).differs_from(replace(FULL, **change), has_outbox=False)


def test_a_guard_with_a_record_of_a_later_version_is_not_believed_and_fenced(store, engine) -> None:
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    guard = plugin.guards["trapped.c"]
    assert plugin.probe(table.c.c, 7) is Answer.ABSENT
    record = guard.record()
    record.version = VERSION + 1
    guard.write_record(record)
    guard.reopen()
    assert "later version" in plugin.probe(table.c.c, 7).reason
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    assert any("in doubt" in why for why in store["trapped.c"].fences.values())
    plugin.build(engine)  # makes a record of its own version
    assert plugin.probe(table.c.c, 7) is Answer.MAYBE
    assert plugin.probe(table.c.c, 8) is Answer.ABSENT
    plugin.unlisten()


def test_deleted_rows_are_counted_in_the_record(plugin, engine, store) -> None:
    guard = plugin.guards["users.email"]
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(email="gone@x"))
    with engine.begin() as connection:
        connection.execute(sa.delete(User).where(User.email == "gone@x"))
    guard.note_deleted()
    record = read_record(store, "users.email")
    assert record is not None
    assert record.deleted == 1
    assert guard_note("users.email") in store.notes
