"""Makes keys of the application's values, following the way they are sent to their columns.

In: values as the application has them, asked for or written, and values that the server has made.
Out: keys, or Unclear. The application's types, the casts that SQLAlchemy asks the database for and
the driver's conversions matter here; canonical.py knows what a column stores of the sent value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column
from sqlalchemy.sql import operators

from bloomstore.keys import Key
from bloomstore.sql.databases.canonical import Canon, Unclear
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.live_table import Live
from bloomstore.sql.sqlalchemy_private import affinity_of


@dataclass(frozen=True, slots=True)
class Made:
    """Stands for the type of a bind if the server made the value; `type` is how it was read."""

    type: Any


class KeyMaker:
    """Makes the keys of one guard in one live database whose columns are not in doubt."""

    def __init__(self, declared: Declared, live: Live) -> None:
        self._declared = declared
        self._live = live
        self._types = [column.type for column in declared.columns]
        self._processors = [key_form.processor_of(type_, live.dialect) for type_ in self._types]
        self.canons = key_form.canons_of(declared, live)
        self.canon: Canon = key_form.joined(self.canons)
        self.replaces_nothing = not self.canon.replaced

    @property
    def is_plain(self) -> bool:
        """Whether there is one column, whose values are sent as they are."""
        dialect = self._live.dialect
        made = [type_.dialect_impl(dialect).bind_processor(dialect) for type_ in self._types]
        return made == [None]

    # Values that are asked for -----------------------------------------------------

    def key_of(self, value: object) -> Key:
        """The key of a value as the application has it; a tuple for several columns."""
        try:
            return self.canon.of(self._sent(value))
        except (ValueError, ArithmeticError) as error:  # digits or dates beyond what Python has
            raise Unclear(f"the value has no key: {error}") from None

    def _sent(self, value: object) -> object:
        types = self._types
        if len(types) == 1:
            return self._compared(value, 0)
        if not isinstance(value, tuple) or len(value) != len(types):
            raise Unclear(
                f"a key of {len(types)} columns is a tuple of as many, got a {type(value).__name__}"
            )
        return tuple(self._compared(each, place) for place, each in enumerate(value))

    def _compared(self, value: object, place: int) -> object:
        """The value that the driver is sent where the column is compared with this one.

        `column == value` may send it as another type than get() does: 0 for a column of bytes is
        a number there and no byte here.
        """
        type_, of = self._types[place], self.canons[place].of
        sent = _processed(value, self._processors[place])
        if sent is None:
            raise Unclear("NULL is never a key")
        compared = type_.coerce_compared_value(operators.eq, value)
        if compared is not type_ and affinity_of(compared) is not affinity_of(type_):
            other = _processed(value, key_form.processor_of(compared, self._live.dialect))
            if of(other) != of(sent):
                raise Unclear(f"{value!r} is sent as {compared!r}, or as {type_!r}")
        return sent

    # Rows that are written ---------------------------------------------------------

    def key_to_store(self, values: list[object], types: list[Any]) -> Key | None:
        """The key of the row that these values make; None if it has none. Raises Unclear.

        Each value is sent as its own type says, or as the declared one where that is None, or was
        made by the server (Made).
        """
        parts: list[Key] = []
        for place, column in enumerate(self._declared.columns):
            stored = self._stored(values[place], types[place], place)
            if stored is None:
                if column.primary_key or not column.nullable or self._has_default(column):
                    raise Unclear(f"NULL for {column.name}, which the database may fill in")
                return None
            part = self.canons[place].of(stored)
            if part in self.canons[place].replaced:
                raise Unclear(f"the database stores {part!r} as something else")
            parts.append(part)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _stored(self, value: object, type_: Any, place: int) -> object:
        if type_ is None or type_ is self._types[place]:
            return _processed(value, self._processors[place])
        dialect = self._live.dialect
        facts = self._live.table.columns[self._declared.columns[place].name.lower()]
        if isinstance(type_, Made):
            if blurred := self._live.blurred or facts.blurred:
                raise Unclear(f"the server has made the value, and {blurred}")
            if not key_form.is_read_raw(type_.type, dialect):
                raise Unclear(f"the server has made the value, and it was read as {type_.type!r}")
            return value
        if doubt := key_form.doubt_of_cast(type_, dialect, facts):
            raise Unclear(doubt)
        return _processed(value, key_form.processor_of(type_, dialect))

    def _has_default(self, column: Column[Any]) -> bool:
        return self._live.table.columns[column.name.lower()].has_default


def _processed(value: object, processor: Callable[[Any], Any] | None) -> object:
    try:
        return value if processor is None else processor(value)
    except Exception as error:  # noqa: BLE001  processors are user code and raise anything
        raise Unclear(f"the value cannot be sent: {error}") from None
