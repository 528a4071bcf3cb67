"""Errors and set bits of a stage some of whose blocks are damaged.

All bits of a damaged block are set until its filter is rebuilt, so a key whose bits lie in damaged
blocks is reported by mistake.
How much that adds to the error is a matter of the layout (`Geometry.error_when_damaged`), which is
told the damaged share of each slice and how full the rest of the vector is.

In: a stage's row, out: an error rate, or the set bits that the stage would have had.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog.rows import StageRow
from bloomstore.layout.contract import Geometry
from bloomstore.segment.blocks import Ranges, bits_in, blocks_in, joined_ranges
from bloomstore.segment.header import BLOCK_BYTES


def error_of(row: StageRow, bits: NDArray[np.uint8] | None = None) -> float:
    """Error of a stage as it is now, its damaged blocks included, by its vector if there is one."""
    geometry = row.spec.geometry
    if not row.damaged:
        return geometry.error_at(row.set_bits, bits)
    shares = _damaged_shares(geometry, row.damaged)
    return geometry.error_when_damaged(undamaged_bits(row), shares)


def undamaged_bits(row: StageRow) -> int:
    """Set bits of the stage if its damaged blocks were as full as the others are."""
    geometry = row.spec.geometry
    if not row.damaged:
        return row.set_bits
    shares = _damaged_shares(geometry, row.damaged)
    left = geometry.vector_bits - sum(shares) * geometry.slice_bits
    sound_bits = row.set_bits - bits_in(geometry, row.damaged)
    if left < 1:
        return geometry.vector_bits  # no bit is sound: the stage may hold any number of keys
    return min(geometry.vector_bits, max(0, round(sound_bits / left * geometry.vector_bits)))


def with_damage(row: StageRow, blocks: abc.Iterable[int]) -> StageRow:
    """The row as it will be once these blocks are set to ones in the file."""
    fresh = joined_ranges(set(blocks) - blocks_in(row.damaged))
    geometry = row.spec.geometry
    fill = undamaged_bits(row) / geometry.vector_bits
    return replace(
        row,
        damaged=joined_ranges(blocks_in(row.damaged) | blocks_in(fresh)),
        set_bits=row.set_bits + round((1.0 - fill) * bits_in(geometry, fresh)),
    )


def _damaged_shares(geometry: Geometry, damaged: Ranges) -> list[float]:
    """The damaged share of the bits that keys can set, slice by slice."""
    return [
        sum(
            max(0, min(end * 8 * BLOCK_BYTES, last) - max(begin * 8 * BLOCK_BYTES, first))
            for begin, end in damaged
        )
        / geometry.slice_bits
        for first, last in _slices(geometry)
    ]


def _slices(geometry: Geometry) -> abc.Iterator[tuple[int, int]]:
    """First bit of each slice, and the one after its last."""
    for number in range(geometry.slices):
        first = number * geometry.stride_bits
        yield first, first + geometry.slice_bits
