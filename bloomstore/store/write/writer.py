"""Adding fingerprints: plan, commit to the journal, set bits, acknowledge.

In: a filter's view and fingerprints, out: how many were new. One step takes as many keys as the
newest stage has room for:

    plan   which of them are new to the stage, and its counts after them; nothing is changed
    write  one LMDB transaction with a journal row per stage: from here on nothing is lost;
           then the bits, then the word `applied`
    grow   a stage that is full gets a successor and is sealed

Durability `process` has no journal: the bits are set in the shared mapping, the filter's row says
`dirty` with the boot id, and the counts live in the segment's words until the next checkpoint.

Everything here runs under the writer lock (`writing`), on a view loaded under it.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, JournalRow, StageRow
from bloomstore.catalog.view import CatalogChange
from bloomstore.crash import crash_point
from bloomstore.errors import FilterFull, StoreFailed, StoreReadOnly
from bloomstore.filters.chain import Chain, Stage
from bloomstore.kernels import OneKey
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS, Segment
from bloomstore.store.durable import checkpoint, recovery, stage_files, trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.writer_lock import APPLIED, APPLYING, GENERATION
from bloomstore.store.view import FilterView

Prints = NDArray[np.uint64]

# Keys of one turn of durability `process`, 5 ms, and of a bulk load: threads wait for each other
# twice in it. In turns of 2^16 keys two threads took longer than one on a busy machine.
TURN_KEYS = 1 << 18

# How long the journal is costs 9 us when nothing is in the caches: rows of a few keys, at most a
# page each, leave the look to every 16th of them.
_SMALL = 128
_LOOK = 16


class Part(NamedTuple):
    """New keys for one stage of durability `commit`, and the stage's counts after them."""

    stage: StageRow
    segment: Segment
    prints: Prints
    set_bits: int
    keys: int


@contextlib.contextmanager
def writing(core: Core) -> abc.Iterator[None]:
    """Holds the writer lock for a change of its own. Raises StoreLocked inside of another."""
    with core.lock.threads(), holding(core):
        core.require_place()
        yield
        core.require_place()


@contextlib.contextmanager
def holding(core: Core, *, keep: bool = False) -> abc.Iterator[None]:
    """Holds the writer lock, with everything that dead holders left finished."""
    if core.options.read_only:
        raise StoreReadOnly(f"{core.folder.path} was opened read-only")
    if core.doubt is not None:
        raise StoreFailed(f"{core.folder.path} takes no changes: {core.doubt}")
    with core.hold(keep=keep):
        if core.finished_tenure != core.lock.tenure:
            recovery.finish(core)
            core.finished_tenure = core.lock.tenure
        if core.unrecorded:
            trust.record_all(core)
        yield


def add(core: Core, view: FilterView, prints: Prints) -> int:
    """Adds keys to the live chain and to that of a rebuild; returns how many were new.

    A rebuild that has no room for them is given up: it is its plan that was too small, and no
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
    prints = unknown_to_older(chain, prints)
    while len(prints):
        piece = prints[:most]
        taken = new = 0
        if has_room(chain):
            if row.durability == "commit":
                taken, new = _add_durably(core, chain.newest, piece)
            else:
                taken, new = _add_at_once(core, row, chain.newest, piece)
        added += new
        prints = prints[taken:]
        if taken < len(piece):
            chain = grow(core, row, chain, added)
            prints = unknown_to_older(chain, prints)
    return added


def unknown_to_older(chain: Chain, prints: Prints) -> Prints:
    """The fingerprints that no stage but the newest has."""
    return without(prints, chain.find_in_older(prints)) if len(chain.stages) > 1 else prints


def without(prints: Prints, known: NDArray[np.bool_]) -> Prints:
    """The fingerprints that are not known. compress takes a tenth of the time of prints[mask]."""
    return prints.compress(~known, axis=0) if known.any() else prints


def has_room(chain: Chain) -> bool:
    """A stage that cannot be trusted takes no keys: they go into a new one."""
    if chain.missing is not None:
        return False
    return chain.newest.segment is not None and chain.newest.doubt is None


def _add_durably(core: Core, stage: Stage, prints: Prints) -> tuple[int, int]:
    part, taken = plan(core, stage, prints)
    if part is None:
        return taken, 0
    journal_bytes = write(core, [part])
    checkpoint.if_due(core, part.stage, journal_bytes)
    return taken, len(part.prints)


def _add_at_once(core: Core, row: FilterRow, stage: Stage, prints: Prints) -> tuple[int, int]:
    """Durability `process`: the bits are set in the shared mapping, and that is all."""
    segment = stage.segment
    assert segment is not None
    core.require_place()
    mark_dirty(core, row)
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


def plan(core: Core, stage: Stage, prints: Prints) -> tuple[Part | None, int]:
    """The part of these keys that fits into the stage, and how many were gone through."""
    segment = stage.segment
    assert segment is not None
    set_bits, keys = counts(core, stage)
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
    """The same for one key that would set so many bits; None if the stage has no room for it."""
    row = stage.row
    set_bits, keys = counts(core, stage)
    if row.is_full(set_bits, keys):
        return None
    assert stage.segment is not None
    return Part(row, stage.segment, print_, set_bits + bits, keys + 1)


def write(
    core: Core,
    parts: abc.Sequence[Part],
    begun: tuple[CatalogChange, int] | None = None,
    handle: OneKey | None = None,
) -> int:
    """Commits the parts to the journal in one transaction, then sets their bits.

    `begun` is the transaction, if there is one already (Catalog.attempt), with the last sequence
    that it shows. `handle`, of one key, sets bits in less time than a kernel. Returns the bytes
    that the journal takes now, or 0 if nobody looked.
    """
    if begun is None:
        with core.catalog.write() as change:
            sequence, journal_bytes = _journal(core, change, change.counters().sequence, parts)
    else:
        sequence, journal_bytes = _journal(core, *begun, parts)
        core.catalog.commit(begun[0])
    crash_point("add: journal committed")
    core.require_place()
    for part in parts:
        if handle is None or not handle._set_bits(part.prints, core.words[GENERATION]):
            kernels.apply(part.segment.shared, part.stage.spec.geometry, part.prints)
        core.counts[part.stage.number] = (part.set_bits, part.keys)
    crash_point("add: applied")
    core.words[APPLIED] = sequence
    core.counts_moment = sequence, core.words[GENERATION]
    crash_point("add: applied word set")
    return journal_bytes


def _journal(
    core: Core, change: CatalogChange, sequence: int, parts: abc.Sequence[Part]
) -> tuple[int, int]:
    """One row for each part; returns the last sequence and the bytes of the journal."""
    for part in parts:
        sequence += 1
        change.append_journal(
            JournalRow(
                sequence=sequence,
                filter_number=part.stage.filter_number,
                chain=part.stage.chain,
                stage=part.stage.stage,
                number=part.stage.number,
                set_bits=part.set_bits,
                keys=part.keys,
                prints=part.prints,
            )
        )
    is_looked_at = len(parts) > 1 or len(parts[0].prints) > _SMALL or not sequence % _LOOK
    if not is_looked_at:
        return sequence, 0
    core.catalog.require_room()
    return sequence, change.journal_bytes()


def grow(core: Core, row: FilterRow, chain: Chain, added: int) -> Chain:
    """The chain with one more stage; the one before is sealed. Raises FilterFull."""
    grown = publish_next(core, row, chain, added)
    if has_room(chain):
        checkpoint.seal(core, row, chain.newest.row)
    return grown


def publish_next(core: Core, row: FilterRow, chain: Chain, added: int = 0) -> Chain:
    """The chain with a new, empty stage at its end. Raises FilterFull where there can be none."""
    if chain.missing is not None:
        raise StoreFailed(f"filter {row.name!r} cannot take keys, rebuild it: {chain.missing}")
    if chain.newest.passes:
        raise StoreFailed(f"filter {row.name!r} cannot take keys now: {chain.newest.doubt}")
    fresh = stage_files.next_stage(core, row, [stage.row for stage in chain.stages])
    if fresh is None:
        if chain.doubt is not None:
            raise StoreFailed(f"filter {row.name!r} cannot take keys: {chain.doubt}")
        raise FilterFull(row.name, chain.newest.row.spec.capacity, added)
    crash_point("seal: next stage published")
    return Chain([*chain.stages, core.stage(fresh)])


def counts(core: Core, stage: Stage) -> tuple[int, int]:
    """Set bits and keys of a stage of durability `commit`, certain under the writer lock."""
    number = stage.row.number
    moment = core.words[APPLIED], core.words[GENERATION]
    if core.counts_moment != moment:  # another process has written, or a stage was replaced
        core.counts.clear()
        core.counts_moment = moment
    if number not in core.counts:
        with core.catalog.read() as view:
            known = view.last_journal_row(number) or view.stage_row(
                stage.row.filter_number, stage.row.chain, stage.row.stage
            )
        assert known is not None
        core.counts[number] = (known.set_bits, known.keys)
    return core.counts[number]


def mark_dirty(core: Core, row: FilterRow) -> None:
    """Says in the catalog, before the first bit, that the segments are ahead of it."""
    if core.dirty_tenure.get(row.number) == core.lock.tenure:
        return
    with core.catalog.read() as view:
        current = view.filter_row(row.name)
        assert current is not None
        if current.dirty_boot is not None:
            core.dirty_tenure[row.number] = core.lock.tenure
            return
        stages = view.stage_rows(row.number)
    for stage_row in stages:
        segment = None if stage_row.sealed else core.stage(stage_row).segment
        if segment is not None:
            segment.words[WORD_SET_BITS] = stage_row.set_bits
            segment.words[WORD_KEYS] = stage_row.keys
            segment.clear_flags()
    with core.catalog.write() as change:
        change.update_filter(row.name, dirty_boot=core.boot)
    core.dirty_tenure[row.number] = core.lock.tenure
    crash_point("process add: marked dirty")
