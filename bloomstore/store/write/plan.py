"""Planning an add: which keys are new to a stage, and the stage's counts after them.

In: a stage and fingerprints, out: a Part, which a commit writes (commit.py). Nothing is changed.
Runs under the writer lock, on a view loaded under it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import StageRow
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.segment import Segment
from bloomstore.store.process.open_files import Core
from bloomstore.store.write import counts

Prints = NDArray[np.uint64]


class Part(NamedTuple):
    """New keys for one stage of durability `commit`, and the stage's counts after them."""

    stage: StageRow
    segment: Segment
    prints: Prints
    set_bits: int
    keys: int


def plan(core: Core, stage: Stage, prints: Prints) -> tuple[Part | None, int]:
    """The part of these keys that fits into the stage, and how many were considered."""
    segment = stage.segment
    assert segment is not None
    set_bits, keys = counts.of_stage(core, stage)
    spec = stage.row.spec
    taken, new, bits = kernels.preview(
        segment.shared, spec.geometry, prints, stage.row.bits_left(set_bits), spec.keys_left(keys)
    )
    keys_new = int(np.count_nonzero(new))
    if not keys_new:
        return None, taken
    fresh = prints if keys_new == len(prints) else without(prints[:taken], ~new)
    return Part(stage.row, segment, fresh, set_bits + bits, keys + len(fresh)), taken


def plan_one(core: Core, stage: Stage, print_: Prints, bits: int) -> Part | None:
    """The same for one key that would set this many bits; None if the stage has no room for it."""
    row = stage.row
    set_bits, keys = counts.of_stage(core, stage)
    if row.is_full(set_bits, keys):
        return None
    assert stage.segment is not None
    return Part(row, stage.segment, print_, set_bits + bits, keys + 1)


def unknown_to_older(chain: Chain, prints: Prints) -> Prints:
    """The fingerprints that no stage but the newest has."""
    return without(prints, chain.find_in_older(prints)) if len(chain.stages) > 1 else prints


def without(prints: Prints, known: NDArray[np.bool_]) -> Prints:
    """The fingerprints that are not known. compress takes a tenth of the time of prints[mask]."""
    return prints.compress(~known, axis=0) if known.any() else prints


def has_room(chain: Chain) -> bool:
    """Whether the newest stage takes keys; those of a stage in doubt go into a new one."""
    if chain.missing is not None:
        return False
    return chain.newest.segment is not None and chain.newest.doubt is None
