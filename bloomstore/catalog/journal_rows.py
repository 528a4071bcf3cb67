"""The rows of the journal: fingerprints of one stage, packed for the write path.

A value is framed (frames.py). Its payload is packed integers, because every durable add writes one:

    offset  size  field
         0     8  filter number
         8     4  chain
        12     4  stage
        16     8  segment number
        24     8  set bits of the stage after these keys
        32     8  keys of the stage after these keys
        40     8  count
        48   ...  `count` fingerprints of 16 bytes
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog.frames import FRAME, ROW_VERSION, VERSION_BYTES
from bloomstore.errors import DamagedRow

FINGERPRINT_BYTES = 16
_JOURNAL = struct.Struct("<QIIQQQQ")
_IS_LITTLE = sys.byteorder == "little"


class JournalRow(NamedTuple):
    """Fingerprints accepted for one stage, with the stage's counts after them.

    A tuple, because every durable add makes one: a frozen dataclass takes 2 us, this 0.4.
    """

    sequence: int
    filter_number: int
    chain: int
    stage: int
    number: int
    set_bits: int
    keys: int
    prints: NDArray[np.uint64]


def frame_journal(key: bytes, row: JournalRow) -> bytes:
    """A framed value: 48 bytes of integers, then the fingerprints one after the other.

    They are copied once: 10^4 of them are 160 kB.
    """
    _, filter_number, chain, stage, number, set_bits, keys, prints = row
    head = _JOURNAL.pack(filter_number, chain, stage, number, set_bits, keys, len(prints))
    stored = prints if _IS_LITTLE else prints.astype("<u8")
    named = google_crc32c.value(b"journal\0" + key + VERSION_BYTES + head)
    checksum = google_crc32c.extend(named, stored)
    return b"".join((FRAME.pack(checksum, ROW_VERSION, 0), head, stored.data))


def unpack_journal(key: bytes, payload: bytes) -> JournalRow:
    """A row from the payload that `frame_journal` has framed. Raises DamagedRow."""
    if len(key) != 8:
        raise DamagedRow("journal", key, "key has the wrong length")
    if len(payload) < _JOURNAL.size:
        raise DamagedRow("journal", key, f"value of {len(payload)} bytes is too short")
    filter_number, chain, stage, number, set_bits, keys, count = _JOURNAL.unpack_from(payload)
    if len(payload) != _JOURNAL.size + count * FINGERPRINT_BYTES:
        raise DamagedRow("journal", key, f"{len(payload)} bytes for {count} fingerprints")
    prints = np.frombuffer(payload, dtype="<u8", offset=_JOURNAL.size).reshape(count, 2)
    return JournalRow(
        sequence=int.from_bytes(key, "big"),
        filter_number=filter_number,
        chain=chain,
        stage=stage,
        number=number,
        set_bits=set_bits,
        keys=keys,
        prints=prints.astype(np.uint64, copy=False),
    )
