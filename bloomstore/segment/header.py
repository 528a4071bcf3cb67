"""The first 4096 bytes of a segment file: which stage this is and how to read its bits.

In: a SegmentHeader, out: bytes; in: bytes, out: a SegmentHeader or an error. No file is opened
here (mapping.py does that) and nothing that changes is stored here (the catalog has the counts).

    offset  size  field           meaning
         0     8  magic           "BLMSEG" CR LF
         8     2  version         1; a reader refuses anything greater
        10     1  layout          LayoutCode
        11     1  scheme          SchemeCode
        12     1  full by         FullBy
        13     1  cell bits       1
        14     2  hashes          k, 1..64
        16     8  slice bits      m (the whole vector when it is not sliced)
        24     8  capacity        keys at which the stage is full, for information when by fill
        32     8  fill limit      IEEE double
        40     8  target error    IEEE double
        48    16  store id        random, equal in all files of one store
        64     8  filter number   equal in all stages of one filter
        72     4  chain           0 for the first build of a filter, 1 for its first rebuild, ...
        76     4  stage           from 0
        80     8  number          of this file; never used again in the store
        88     4  seed            of the fingerprints
        92     4  block bytes     65536; the unit of checksums
        96     8  vector bytes    length of the vector that follows the header
       104  3988  reserved        0
      4092     4  checksum        crc32c of bytes 0..4091
      4096   ...  vector, then zeros to a multiple of 4096, then one page of words (segment.py)

Invariants
  1. A header is written once, before the first bit is set, and is never rewritten.
  2. A header that unpacks says completely how to read its bits, so `check` can name a segment
     without the catalog.
  3. Reserved bytes are zero and are covered by the checksum.
"""

from __future__ import annotations

import collections.abc as abc
import struct
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from bloomstore.errors import DamagedFile, SpecError, UnsupportedVersion
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.layouts import geometry_of

HEADER_BYTES = 4096
PAGE_BYTES = 4096
BLOCK_BYTES = 65536
WORDS_BYTES = 64  # of the last page; the rest of it are flags
FLAGS_BYTES = PAGE_BYTES - WORDS_BYTES
VERSION = 1
MAGIC = b"BLMSEG\r\n"

_FIELDS = struct.Struct("<8sHBBBBHQQdd16sQIIQIIQ")
_CHECKSUM = struct.Struct("<I")
_CHECKED_BYTES = HEADER_BYTES - _CHECKSUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """Identity and geometry of one segment."""

    store_id: bytes
    filter_number: int
    chain: int
    stage: int
    number: int
    seed: int
    spec: StageSpec

    @property
    def file_name(self) -> str:
        """Name of the file in the segments folder; made of numbers only."""
        return f"F{self.filter_number}.C{self.chain}.S{self.stage}.N{self.number}.seg"

    @property
    def words_offset(self) -> int:
        """Where the page of words begins."""
        pages = -(-self.spec.geometry.vector_bytes // PAGE_BYTES)
        return HEADER_BYTES + pages * PAGE_BYTES

    @property
    def block_shift(self) -> int:
        """From the address of a bit to its block."""
        return (8 * BLOCK_BYTES).bit_length() - 1

    @property
    def flag_shift(self) -> int:
        """From the address of a bit to the flag of its block, or of its group of blocks."""
        shift, last = self.block_shift, 8 * self.spec.geometry.vector_bytes - 1
        while last >> shift >= FLAGS_BYTES:
            shift += 1
        return shift

    @property
    def file_bytes(self) -> int:
        """Exact length of the file."""
        return self.words_offset + PAGE_BYTES

    @property
    def blocks(self) -> int:
        """Number of checksummed blocks; the last one may be shorter."""
        return -(-self.spec.geometry.vector_bytes // BLOCK_BYTES)


def filter_number(file_name: str) -> int:
    """The number of the filter in the name of a segment file, or 0 for any other name."""
    number = file_name.removeprefix("F").partition(".C")[0]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0


def segment_number(file_name: str) -> int:
    """The number in the name of a segment file, or 0 for any other name."""
    number = file_name.removesuffix(".seg").rpartition(".N")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0


def pack_header(header: SegmentHeader) -> bytes:
    """The 4096 bytes of a header."""
    spec = header.spec
    geometry = spec.geometry
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        geometry.layout,
        geometry.scheme,
        spec.full_by,
        geometry.cell_bits,
        geometry.hashes,
        geometry.slice_bits,
        spec.capacity,
        spec.fill_limit,
        spec.target_error,
        header.store_id,
        header.filter_number,
        header.chain,
        header.stage,
        header.number,
        header.seed,
        BLOCK_BYTES,
        geometry.vector_bytes,
    )
    checked = fields.ljust(_CHECKED_BYTES, b"\0")
    return checked + _CHECKSUM.pack(google_crc32c.value(checked))


def unpack_header(raw: bytes, path: Path) -> SegmentHeader:
    """The header in these bytes. Raises DamagedFile or UnsupportedVersion, naming the path."""
    if len(raw) < HEADER_BYTES:
        raise DamagedFile(path, len(raw), f"header ends here, expected {HEADER_BYTES} bytes")
    if raw[:8] != MAGIC:
        raise DamagedFile(path, 0, f"magic is {raw[:8]!r}, expected {MAGIC!r}")
    (found,) = _CHECKSUM.unpack_from(raw, _CHECKED_BYTES)
    expected = google_crc32c.value(raw[:_CHECKED_BYTES])
    if found != expected:
        what = f"header checksum is {found:08x}, expected {expected:08x}"
        raise DamagedFile(path, _CHECKED_BYTES, what)
    version = int.from_bytes(raw[8:10], "little")
    if version > VERSION:
        raise UnsupportedVersion(path, version, VERSION)
    if version not in READERS:
        raise DamagedFile(path, 8, f"there never was a version {version}")
    return READERS[version](raw, path)


def _unpack_1(raw: bytes, path: Path) -> SegmentHeader:
    """Version 1, as drawn above; the checksum fits."""
    (
        _,
        _,
        layout,
        scheme,
        full_by,
        cell_bits,
        hashes,
        slice_bits,
        capacity,
        fill_limit,
        target_error,
        store_id,
        filter_number,
        chain,
        stage,
        number,
        seed,
        block_bytes,
        vector_bytes,
    ) = _FIELDS.unpack_from(raw)
    if any(raw[_FIELDS.size : _CHECKED_BYTES]):
        raise DamagedFile(path, _FIELDS.size, "reserved bytes are not zero")
    try:
        geometry = geometry_of(layout, scheme, slice_bits, hashes)
        spec = StageSpec(
            geometry=geometry,
            capacity=capacity,
            fill_limit=fill_limit,
            target_error=target_error,
            full_by=FullBy(full_by),
        )
    except (SpecError, ValueError) as error:
        raise DamagedFile(path, 10, f"header makes no sense: {error}") from None
    sizes = (geometry.cell_bits, BLOCK_BYTES, geometry.vector_bytes)
    if (cell_bits, block_bytes, vector_bytes) != sizes:
        raise DamagedFile(path, 92, "cell, block or vector size does not fit the geometry")
    return SegmentHeader(
        store_id=store_id,
        filter_number=filter_number,
        chain=chain,
        stage=stage,
        number=number,
        seed=seed,
        spec=spec,
    )


# How the header of each version is read. Append only: files of every version stay readable.
READERS: dict[int, abc.Callable[[bytes, Path], SegmentHeader]] = {1: _unpack_1}
