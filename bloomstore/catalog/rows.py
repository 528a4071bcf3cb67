"""The rows of the catalog as typed values, and their payloads.

In: a row, out: bytes; in: bytes, out: a row or DamagedRow.

Invariants
  1. Nothing here executes what it reads: JSON and fixed-width integers only.
  2. A payload is checked field by field; one that makes no sense raises DamagedRow, never anything
     else.

Not here: the checksum around a payload (frames.py), the rows of the journal (journal_rows.py), LMDB
(environment.py, catalog.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from bloomstore.catalog.fields import Fields
from bloomstore.catalog.frames import dump, unframe
from bloomstore.catalog.reasons import Reason
from bloomstore.errors import DamagedRow, SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.families.plain_form import spec_from_dict
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.layouts import geometry_of
from bloomstore.segment.blocks import Ranges, bits_in, ranges_from
from bloomstore.segment.header import SegmentHeader

Durability = Literal["commit", "process"]
DURABILITIES: tuple[Durability, ...] = ("commit", "process")

_COUNTERS = struct.Struct("<QQQ")
# How many unpacked rows are remembered: opening a filter reads its two rows eight times, 24 us
# each. Unpacked rows are never changed.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Numbers that only grow: the next file or filter number, generation, last sequence."""

    next_number: int = 1
    generation: int = 1
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRow:
    """One filter: its spec, the chain that answers, and how many stages its chains have."""

    name: str
    number: int
    spec: FilterSpec
    durability: Durability
    created_at: float
    live_chain: int = 0
    stages: int = 0
    coming_chain: int | None = None
    coming_stages: int = 0
    coming_spec: FilterSpec | None = None
    next_chain: int = 1
    dirty_boot: str | None = None
    declared: int | None = None  # keys that it was made for, once a rebuild has begun
    fences: dict[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of one chain, with its counts as of the last checkpoint.

    damaged: blocks that failed their checksums and are ones since then; they count as set.
    """

    filter_number: int
    chain: int
    stage: int
    number: int
    seed: int
    spec: StageSpec
    opened_at: float
    opened_boot: str | None = None
    opened_clock: float | None = None
    filled_at: float | None = None
    set_bits: int = 0
    keys: int = 0
    sealed: bool = False
    poisoned: Reason | None = None
    damaged: Ranges = ()

    def header(self, store_id: bytes) -> SegmentHeader:
        """The header that the segment of this stage must have."""
        return SegmentHeader(
            store_id=store_id,
            filter_number=self.filter_number,
            chain=self.chain,
            stage=self.stage,
            number=self.number,
            seed=self.seed,
            spec=self.spec,
        )

    def with_counts(self, set_bits: int, keys: int) -> StageRow:
        """The same stage with newer counts."""
        return replace(self, set_bits=set_bits, keys=keys)

    def bits_left(self, set_bits: int) -> int:
        """How many more bits may be set before the stage is full."""
        return self.spec.bits_left(self._usual(set_bits))

    def is_full(self, set_bits: int, keys: int) -> bool:
        """Whether one more new key could break the stage's promise."""
        return self.spec.is_full(self._usual(set_bits), keys)

    def _usual(self, set_bits: int) -> int:
        """Set bits with blocks of ones counted as full as a stage may be: they take no keys."""
        if not self.damaged:
            return set_bits
        ones = bits_in(self.spec.geometry, self.damaged)
        return set_bits - int((1.0 - self.spec.fill_limit) * ones)


def pack_counters(counters: Counters) -> bytes:
    """24 bytes."""
    return _COUNTERS.pack(counters.next_number, counters.generation, counters.sequence)


@lru_cache(8)
def unframe_counters(raw: bytes) -> Counters:
    """The counters in a framed value. Every durable add reads them, mostly the same bytes."""
    payload = unframe("store", b"counters", raw)
    if len(payload) != _COUNTERS.size:
        raise DamagedRow("store", b"counters", f"{len(payload)} bytes, expected {_COUNTERS.size}")
    number, generation, sequence = _COUNTERS.unpack(payload)
    return Counters(next_number=number, generation=generation, sequence=sequence)


# These bytes are in the packed row of every filter that is not dirty, and in no other row: quotes
# are escaped.
CLEAN = b'"dirty_boot":null'


def pack_filter(row: FilterRow) -> bytes:
    """JSON."""
    return dump(
        {
            "number": row.number,
            "spec": row.spec.to_dict(),
            "durability": row.durability,
            "created_at": row.created_at,
            "live_chain": row.live_chain,
            "stages": row.stages,
            "coming_chain": row.coming_chain,
            "coming_stages": row.coming_stages,
            "coming_spec": None if row.coming_spec is None else row.coming_spec.to_dict(),
            "next_chain": row.next_chain,
            "dirty_boot": row.dirty_boot,
            "declared": row.declared,
            "fences": {token: why._asdict() for token, why in row.fences.items()},
        }
    )


@lru_cache(_REMEMBERED)
def unpack_filter(key: bytes, payload: bytes) -> FilterRow:
    """Inverse of pack_filter."""
    plain = Fields("filters", key, payload)
    try:
        name = key.decode()
        spec = spec_from_dict(plain.get("spec", dict))
        coming = plain.get("coming_spec", dict, None)
        coming_spec = None if coming is None else spec_from_dict(coming)
    except (SpecError, UnicodeDecodeError) as error:
        raise DamagedRow("filters", key, str(error)) from None
    durability = plain.get("durability", str)
    if durability not in DURABILITIES:
        raise DamagedRow("filters", key, f"unknown durability {durability!r}")
    fences = {
        token: Reason(why.get("code", int), why.get("text", str))
        for token, why in plain.nested("fences").items()
    }
    return FilterRow(
        name=name,
        number=plain.get("number", int),
        spec=spec,
        durability=durability,
        created_at=plain.get("created_at", float),
        live_chain=plain.get("live_chain", int),
        stages=plain.get("stages", int),
        coming_chain=plain.get("coming_chain", int, None),
        coming_stages=plain.get("coming_stages", int),
        coming_spec=coming_spec,
        next_chain=plain.get("next_chain", int),
        dirty_boot=plain.get("dirty_boot", str, None),
        declared=plain.get("declared", int, None),
        fences=fences,
    )


def pack_stage(row: StageRow) -> bytes:
    """JSON."""
    geometry = row.spec.geometry
    return dump(
        {
            "number": row.number,
            "seed": row.seed,
            "layout": int(geometry.layout),
            "scheme": int(geometry.scheme),
            "slice_bits": geometry.slice_bits,
            "hashes": geometry.hashes,
            "capacity": row.spec.capacity,
            "fill_limit": row.spec.fill_limit,
            "target_error": row.spec.target_error,
            "full_by": int(row.spec.full_by),
            "opened_at": row.opened_at,
            "opened_boot": row.opened_boot,
            "opened_clock": row.opened_clock,
            "filled_at": row.filled_at,
            "set_bits": row.set_bits,
            "keys": row.keys,
            "sealed": row.sealed,
            "poisoned": None if row.poisoned is None else row.poisoned.text,
            "poisoned_code": None if row.poisoned is None else row.poisoned.code,
            "damaged": row.damaged,
        }
    )


_STAGE_KEY = struct.Struct(">QII")


def stage_key(filter_number: int, chain: int = 0, stage: int = 0) -> bytes:
    """Key of a stage row; big-endian, so that the stages of a chain lie side by side, in order."""
    return _STAGE_KEY.pack(filter_number, chain, stage)


@lru_cache(_REMEMBERED)
def unpack_stage(key: bytes, payload: bytes) -> StageRow:
    """Inverse of pack_stage."""
    if len(key) != _STAGE_KEY.size:
        raise DamagedRow("stages", key, "key has the wrong length")
    filter_number, chain, stage = _STAGE_KEY.unpack(key)
    plain = Fields("stages", key, payload)
    try:
        spec = StageSpec(
            geometry=geometry_of(
                layout=plain.get("layout", int),
                scheme=plain.get("scheme", int),
                slice_bits=plain.get("slice_bits", int),
                hashes=plain.get("hashes", int),
            ),
            capacity=plain.get("capacity", int),
            fill_limit=plain.get("fill_limit", float),
            target_error=plain.get("target_error", float),
            full_by=FullBy(plain.get("full_by", int)),
        )
        damaged = ranges_from(plain.get("damaged", list, []), spec.geometry)
    except (SpecError, ValueError) as error:
        raise DamagedRow("stages", key, str(error)) from None
    text = plain.get("poisoned", str, None)
    return StageRow(
        filter_number=filter_number,
        chain=chain,
        stage=stage,
        number=plain.get("number", int),
        seed=plain.get("seed", int),
        spec=spec,
        opened_at=plain.get("opened_at", float),
        opened_boot=plain.get("opened_boot", str, None),
        opened_clock=plain.get("opened_clock", float, None),
        filled_at=plain.get("filled_at", float, None),
        set_bits=plain.get("set_bits", int),
        keys=plain.get("keys", int),
        sealed=plain.get("sealed", bool),
        poisoned=None if text is None else Reason(plain.get("poisoned_code", int), text),
        damaged=damaged,
    )


def pack_tombstone(file_name: str, reason: str) -> bytes:
    """JSON."""
    return dump({"file": file_name, "reason": reason})


def unpack_tombstone(key: bytes, payload: bytes) -> str:
    """Name of the file that this tombstone allows to be unlinked."""
    return str(Fields("tombstones", key, payload).get("file", str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which store this is. A copy keeps the id (its segments carry it), not the incarnation."""

    store_id: bytes
    incarnation: str
    created_at: float
    lmdb_version: str
    format: int = 1  # of the catalog, see upgrade.py
    # Files with numbers below this may be of filters that a rolled back catalog has forgotten.
    forgotten_below: int = 0


def pack_identity(identity: Identity) -> bytes:
    """JSON."""
    return dump(
        {
            "id": identity.store_id.hex(),
            "incarnation": identity.incarnation,
            "created_at": identity.created_at,
            "lmdb": identity.lmdb_version,
            "format": identity.format,
            "forgotten_below": identity.forgotten_below,
        }
    )


@lru_cache(8)
def unpack_identity(payload: bytes) -> Identity:
    """Inverse of pack_identity."""
    plain = Fields("store", b"identity", payload)
    text = plain.get("id", str)
    try:
        store_id = bytes.fromhex(text)
    except ValueError:
        store_id = b""
    if len(store_id) != 16:
        raise DamagedRow("store", b"identity", f"store id is {text!r}, expected 32 hex digits")
    return Identity(
        store_id=store_id,
        incarnation=plain.get("incarnation", str),
        created_at=plain.get("created_at", float),
        lmdb_version=plain.get("lmdb", str),
        format=plain.get("format", int, 1),
        forgotten_below=plain.get("forgotten_below", int, 0),
    )
