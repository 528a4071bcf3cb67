"""Adding fingerprints: plan, commit to the journal, set bits, acknowledge.

In: a filter's view and fingerprints, out: how many were new. One step takes as many keys as the
newest stage has room for:

    plan    which of them are new to the stage, and its counts after them; nothing is changed
    commit  one LMDB transaction with a journal row per stage: from here on nothing is lost;
            then the bits, then the word `applied`
    grow    a stage that is full gets a successor and is sealed (growth.py)

Durability `process` has no journal: the bits are set in the shared mapping, the filter's row says
`dirty` with the boot id, and the counts live in the segment's words until the next checkpoint.

Everything here runs under the writer lock (durable/holding.py), on a view loaded under it.
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import replace

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow
from bloomstore.crash import crash_point
from bloomstore.errors import FilterFull
from bloomstore.filters.chain import Chain, Stage
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import checkpoint, stage_files, trust
from bloomstore.store.durable.holding import holding
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import APPLYING
from bloomstore.store.view import FilterView
from bloomstore.store.write import commit, counts, growth, plan
from bloomstore.store.write.plan import Prints

# Keys of one turn of durability `process`, 5 ms, and of a bulk load: threads wait for each other
# twice in it. In turns of 2^16 keys two threads took longer than one on a busy machine.
TURN_KEYS = 1 << 18


def add(core: Core, view: FilterView, prints: Prints) -> int:
    """Adds keys to the live chain and to that of a rebuild; returns how many were new.

    A rebuild that has no room for them is given up: its plan was too small, which is no
    reason to refuse keys that the filter can take.
    """
    added = add_to_chain(core, view.row, view.live, prints)
    if view.coming is not None:
        try:
            add_to_chain(core, coming_row(view.row), view.coming, prints)
        except FilterFull:
            stage_files.discard_coming(core, view.row)
    return added


def add_turn(
    core: Core, view: abc.Callable[[], FilterView], chunks: abc.Iterator[Prints]
) -> int | None:
    """Durability `process`: adds the next chunk, and hashes its keys, under one hold of the lock.

    Returns how many keys were new, or None when no chunk is left. `view` is called under the lock.
    """
    with core.lock.threads(), holding(core, keep=True):
        prints = next(chunks, None)
        return None if prints is None else add(core, view(), prints)


def coming_row(row: FilterRow) -> FilterRow:
    """The row as it will be once the rebuild has switched."""
    assert row.coming_spec is not None
    return replace(row, spec=row.coming_spec)


def add_to_chain(core: Core, row: FilterRow, chain: Chain, prints: Prints) -> int:
    """Adds keys to one chain, growing it as needed; returns how many were new."""
    added = 0
    most = kernels.MAX_PRINTS_PER_CALL if row.durability == "commit" else TURN_KEYS
    trust.prepare(core, chain, prints)
    prints = plan.unknown_to_older(chain, prints)
    while len(prints):
        piece = prints[:most]
        taken = new = 0
        if plan.has_room(chain):
            if row.durability == "commit":
                taken, new = _add_durably(core, chain.newest, piece)
            else:
                taken, new = _add_at_once(core, row, chain.newest, piece)
        added += new
        prints = prints[taken:]
        if taken < len(piece):
            chain = growth.grow(core, row, chain, added)
            prints = plan.unknown_to_older(chain, prints)
    return added


def _add_durably(core: Core, stage: Stage, prints: Prints) -> tuple[int, int]:
    part, taken = plan.plan(core, stage, prints)
    if part is None:
        return taken, 0
    journal_bytes = commit.write(core, [part])
    checkpoint.if_due(core, part.stage, journal_bytes)
    return taken, len(part.prints)


def _add_at_once(core: Core, row: FilterRow, stage: Stage, prints: Prints) -> tuple[int, int]:
    """Adds with durability `process`: only sets bits in the shared mapping."""
    segment = stage.segment
    assert segment is not None
    core.require_place()
    counts.mark_dirty(core, row)
    spec = stage.row.spec
    set_bits, keys = segment.words[WORD_SET_BITS], segment.words[WORD_KEYS]
    kernels.mark(segment.flags, segment.flag_shift, spec.geometry, prints)
    core.words[APPLYING] = stage.row.number
    taken, new, bits = kernels.insert(
        segment.shared, spec.geometry, prints, stage.row.bits_left(set_bits), spec.keys_left(keys)
    )
    crash_point("process add: bits set")
    added = int(np.count_nonzero(new))
    segment.words[WORD_SET_BITS] = set_bits + bits
    segment.words[WORD_KEYS] = keys + added
    core.words[APPLYING] = 0
    core.require_place()
    return taken, added
