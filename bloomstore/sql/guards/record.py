"""The record of a guard: how and from which database its filter was built, as JSON in a note.

The record lets another process, or a later one, decide whether to believe the filter: trust.py
compares it with the live database. A build announces the form of its keys in `building`, so that
every writer knows whether its own keys fit. The other fields change when a build has ended.

Records are written whole, in one durable commit. FORMAT.md describes each field.

Invariants
  1. `version` is written from version 1 on; a record without it also has version 1.
  2. A record of a later version is not believed, and no key is added on the strength of it:
     the program that wrote it may mean another key form by the same words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bloomstore import Store
from bloomstore.errors import DamagedRow
from bloomstore.sql.guards.declaration import Declared
from bloomstore.store.note_names import guard_note

VERSION = 1  # of the record


@dataclass(slots=True)
class Record:
    """The record of one guard. Without a form its filter was never built."""

    table: str
    schema: str | None
    columns: list[str]
    form: dict[str, Any] = field(default_factory=dict)
    building: dict[str, Any] = field(default_factory=dict)  # the form of a build in progress
    database: dict[str, str] = field(default_factory=dict)
    store: str = ""
    filter_number: int = -1  # a filter that was dropped and made again has another one
    token: str = ""  # the token that the build left in the database; see incarnation.py
    epoch: int = 0
    feed: dict[str, Any] = field(default_factory=dict)  # the snapshot of the build; see position.py
    feed_building: dict[str, Any] = field(default_factory=dict)  # the same of a rebuild
    rows: int = 0
    deleted: int = 0
    version: int = VERSION

    @classmethod
    def of(cls, declared: Declared) -> Record:
        """The record of a filter that holds nothing yet."""
        columns = [column.name for column in declared.columns]
        return cls(declared.table.name, declared.table.schema, columns)

    @property
    def guarded(self) -> tuple[str, str | None, list[str]]:
        """The guarded table, its schema and its columns."""
        return self.table, self.schema, self.columns

    @property
    def is_readable(self) -> bool:
        """Whether this version of bloomstore knows what the record means."""
        return self.version <= VERSION

    @property
    def known_form(self) -> dict[str, Any]:
        """The form that writers must have: of the build in progress, else of the last one."""
        return self.building or self.form

    def differs_from(self, now: Record, *, has_outbox: bool) -> bool:
        """Whether the filter was built for another table or key form than a build would use now.

        If so, its keys are useless. False for a filter that was never built.
        """
        return bool(self.form) and (
            not self.is_readable
            or self.guarded != now.guarded
            or self.form != now.form
            or self.database != now.database
            or self.store != now.store
            or self.filter_number != now.filter_number
            or bool(self.feed) is not has_outbox  # its keys came in another way
        )

    def pack(self) -> bytes:
        """The record as JSON that people can read."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> Record:
        """Reads JSON, without unknown fields; `is_readable` says whether the rest may be used."""
        fields = json.loads(raw)
        return cls(**{name: fields[name] for name in cls.__slots__ if name in fields})


def read_record(store: Store, name: str) -> Record | None:
    """The record of a guard; None if no guard of this name was ever declared with the store."""
    raw = store.notes.get(guard_note(name))
    return None if raw is None else Record.unpack(raw)


def write_record(store: Store, name: str, record: Record) -> None:
    """Writes the record; it is durable when this returns."""
    store.notes[guard_note(name)] = record.pack()


def change_record(store: Store, name: str, change: Callable[[Record], None]) -> None:
    """Changes the record of a filter that was built, with no other change in between."""

    def changed(raw: bytes | None) -> bytes | None:
        record = None if raw is None else Record.unpack(raw)
        if record is None or not record.form or not record.is_readable:
            return None
        change(record)
        return record.pack()

    store.notes.change(guard_note(name), changed)


def deleted_rows(store: Store, name: str) -> int:
    """Rows deleted since the filter was built; 0 if nothing is known of them."""
    try:
        fields = json.loads(store.notes.get(guard_note(name), b"{}"))
        return int(fields.get("deleted", 0))
    except (DamagedRow, ValueError):
        return 0
