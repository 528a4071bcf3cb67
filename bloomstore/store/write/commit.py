"""The commit of an add: journal rows, then bits, then the word `applied`.

In: the parts of a plan, out: the bytes of the journal. All parts are one LMDB transaction: from its
commit on nothing of them is lost, and before it nothing has changed.

Runs under the writer lock.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore import kernels
from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.crash import crash_point
from bloomstore.kernels import OneKey
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import APPLIED, GENERATION
from bloomstore.store.write.plan import Part

# Asking for the length of the journal costs 9 us with cold caches, so commits of few keys, at most
# a page, ask only at every 16th row.
_FEW_KEYS = 128
_ROWS_PER_LOOK = 16


def write(
    core: Core,
    parts: abc.Sequence[Part],
    begun: tuple[CatalogChange, int] | None = None,
    handle: OneKey | None = None,
) -> int:
    """Commits the parts to the journal in one transaction, then sets their bits.

    `begun` is the transaction, if there is one already (Catalog.attempt), with the last sequence
    that it shows. `handle`, of one key, sets bits in less time than a kernel. Returns the bytes
    that the journal takes now, or 0 if that was not looked up.
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
    before = sequence
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
    is_short = sum([len(part.prints) for part in parts]) <= _FEW_KEYS
    if is_short and before // _ROWS_PER_LOOK == sequence // _ROWS_PER_LOOK:
        return sequence, 0
    core.catalog.require_room()
    return sequence, change.journal_bytes()
