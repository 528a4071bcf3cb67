"""The frame around every value of the catalog: a checksum and a version.

In: a payload and where it is stored, out: bytes; in: bytes, out: the payload or DamagedRow.

    offset  size  field     meaning
         0     4  checksum  crc32c of table name, 0 byte, key, and bytes 4.. of the value
         4     2  version   1; a reader refuses anything greater
         6     2  reserved  0
         8   ...  payload   JSON (filters, stages, tombstones, store) or packed integers

The key is part of the checksum, so a row that was moved to another key never fits.

Not here: the meaning of payloads (rows.py, journal_rows.py).
"""

from __future__ import annotations

import json
import struct
from typing import Any

import google_crc32c

from bloomstore.errors import DamagedRow

ROW_VERSION = 1
FRAME = struct.Struct("<IHH")
VERSION_BYTES = FRAME.pack(0, ROW_VERSION, 0)[4:]


def frame(table: str, key: bytes, payload: bytes) -> bytes:
    """Payload with version and checksum in front."""
    named = google_crc32c.value(_named(table, key) + VERSION_BYTES)
    return FRAME.pack(google_crc32c.extend(named, payload), ROW_VERSION, 0) + payload


def unframe(table: str, key: bytes, raw: bytes) -> bytes:
    """Payload of a framed value. Raises DamagedRow."""
    if len(raw) < FRAME.size:
        raise DamagedRow(table, key, f"value of {len(raw)} bytes is too short")
    checksum, version, reserved = FRAME.unpack_from(raw)
    if google_crc32c.value(_named(table, key) + raw[4:]) != checksum:
        raise DamagedRow(table, key, "checksum does not fit")
    if version > ROW_VERSION or reserved:
        raise DamagedRow(table, key, f"row version {version}, this library reads {ROW_VERSION}")
    return raw[FRAME.size :]


def _named(table: str, key: bytes) -> bytes:
    return table.encode() + b"\0" + key


def dump(plain: dict[str, Any]) -> bytes:
    """JSON as the rows have it."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
