"""The fields of a JSON row, checked one by one: a row that makes no sense raises DamagedRow."""

from __future__ import annotations

import json
from typing import Any

from bloomstore.errors import DamagedRow

_REQUIRED = object()


class Fields:
    """The fields of a JSON payload, each checked for its type when it is taken."""

    def __init__(self, table: str, key: bytes, payload: bytes) -> None:
        self._table = table
        self._key = key
        try:
            plain = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise DamagedRow(table, key, f"not JSON: {error}") from None
        self._take(plain)

    def _take(self, plain: object) -> None:
        if not isinstance(plain, dict):
            raise DamagedRow(self._table, self._key, "not a JSON object")
        self._plain: dict[str, Any] = plain

    def nested(self, name: str) -> dict[str, Fields]:
        """The fields of each object in a field that maps names to objects. Raises DamagedRow."""
        return {key: self._of(plain) for key, plain in self.get(name, dict).items()}

    def _of(self, plain: object) -> Fields:
        fields = Fields.__new__(Fields)
        fields._table, fields._key = self._table, self._key
        fields._take(plain)
        return fields

    def get(self, name: str, kind: type, default: object = _REQUIRED) -> Any:
        """The value of a field, of this type. Raises DamagedRow where it is not, or is missing."""
        value = self._plain.get(name, default)
        if value is _REQUIRED:
            raise DamagedRow(self._table, self._key, f"{name} is missing")
        if value is default:
            return value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 63):
            raise DamagedRow(
                self._table, self._key, f"{name} is {value!r}, expected {kind.__name__}"
            )
        return value
