"""What a filter was built with: JSON in the store's notes, under "guard/<name>"."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PREFIX = "guard/"  # of the names of notes


@dataclass(slots=True)
class Note:
    """What a filter was built with."""

    table: str
    schema: str | None
    columns: list[str]
    form: dict[str, Any] = field(default_factory=dict)
    building: dict[str, Any] = field(default_factory=dict)  # the form of a build that goes on
    database: dict[str, str] = field(default_factory=dict)
    store: str = ""
    filter_number: int = -1  # its number: one that was dropped and made again is empty
    token: str = ""  # what the build left in the database; see incarnation.py
    epoch: int = 0
    feed: dict[str, Any] = field(
        default_factory=dict
    )  # the snapshot it begins with; see catch_up.py
    feed_building: dict[str, Any] = field(default_factory=dict)  # the same of a rebuild
    rows: int = 0
    deleted: int = 0

    @property
    def place(self) -> tuple[str, str | None, list[str]]:
        """What is guarded."""
        return self.table, self.schema, self.columns

    def pack(self) -> bytes:
        """As JSON, for people too."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> Note:
        """Unknown fields of a later version are left out."""
        found = json.loads(raw)
        return cls(**{name: found[name] for name in cls.__slots__ if name in found})
