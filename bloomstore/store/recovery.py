"""Finishing what others left: journal rows that are not applied, words that are not set.

Whoever takes the writer lock calls `finish` first: a holder that died between its commit and its
bits left acknowledged or nearly acknowledged rows, and running readers would say "no" for ever.
Whoever opens a store that nobody else has open, or whose words belong to another boot, calls
`recover`: such words mean nothing, and pages may have been lost with the machine, so every row is
stored again.

Replay is idempotent and only sets bits: running it twice, or half, or beside readers, is safe.
Nothing is deleted here; rows go at the next checkpoint.
"""

from __future__ import annotations

import collections.abc as abc
import math

from bloomstore import kernels
from bloomstore.catalog.rows import FilterRow, JournalRow
from bloomstore.crash import crash_point
from bloomstore.filters.accuracy import distinct_keys
from bloomstore.segment.header import segment_number
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.core import UNAPPLIED, Core
from bloomstore.store.lock import APPLIED, APPLYING, BOOT, GENERATION


def rollback(core: Core) -> str | None:
    """Why the catalog must be older than the files beside it, if it is.

    Every number is committed before its file is made, so the files are listed first.
    """
    numbers = [segment_number(path.name) for path in core.folder.segments.iterdir()]
    with core.catalog.read() as view:
        next_number = view.counters().next_number
    if max(numbers, default=0) < next_number:
        return None
    return (
        f"the catalog was rolled back: it has given out numbers below {next_number},"
        f" a file has number {max(numbers)}"
    )


def finish(core: Core) -> None:
    """Makes words and bits what the catalog says. Called under the writer lock."""
    # A holder that died inside its commit left more than reads can see.
    with core.catalog.settled() as view:
        counters = view.counters()
        behind = core.words[APPLIED] < counters.sequence
        rows = list(view.journal(after=core.words[APPLIED])) if behind else []
    if core.words[GENERATION] != counters.generation:
        core.words[GENERATION] = counters.generation
    if behind:
        replay(core, rows)
        core.words[APPLIED] = counters.sequence
    _finish_counting(core)


def recover(core: Core) -> None:
    """Applies the whole journal and sets all words. Called under the writer lock."""
    with core.catalog.settled() as view:
        counters = view.counters()
        rows = list(view.journal())
        lost = [row for row in view.sound_filter_rows() if row.dirty_boot not in (None, core.boot)]
    core.words[GENERATION] = counters.generation
    crash_point("recovery: words set")
    replay(core, rows)
    core.words[APPLIED] = counters.sequence
    _finish_counting(core)
    for row in lost:
        _doubt_lost_keys(core, row)
    core.words[BOOT] = core.boot_word
    crash_point("recovery: done")


def replay(core: Core, rows: abc.Iterable[JournalRow]) -> None:
    """Sets all bits of these rows, unconditionally; a stage that cannot be mapped is poisoned."""
    for row in rows:
        with core.catalog.read() as view:
            stage_row = view.stage_row(row.filter_number, row.chain, row.stage)
        if stage_row is None or stage_row.number != row.number or stage_row.sealed:
            continue
        segment = core.mapped(stage_row)
        if segment is not None:
            kernels.apply(segment.vector, stage_row.spec.geometry, row.prints)
            crash_point("recovery: row applied")
        elif stage_row.poisoned is None:
            core.poison(stage_row, UNAPPLIED)


def _finish_counting(core: Core) -> None:
    if core.words[APPLYING]:
        _recount(core, core.words[APPLYING])
        core.words[APPLYING] = 0


def _recount(core: Core, number: int) -> None:
    """A `process` add died between its bits and its counts: count the bits, and guess the keys."""
    with core.catalog.read() as view:
        for row in view.sound_filter_rows():
            for stage_row in view.stage_rows(row.number):
                if stage_row.number == number and not stage_row.sealed:
                    segment = core.mapped(stage_row)
                    if segment is not None:
                        set_bits = kernels.count_bits(segment.vector)
                        keys = distinct_keys([(stage_row.spec.geometry, set_bits)]).high
                        segment.words[WORD_SET_BITS] = set_bits
                        if math.isfinite(keys):
                            known = segment.words[WORD_KEYS]
                            segment.words[WORD_KEYS] = max(known, math.ceil(keys))


def _doubt_lost_keys(core: Core, row: FilterRow) -> None:
    """Keys of durability `process` went with the machine: the stages they were in say "maybe"."""
    reason = "the machine went down before the last keys were written"
    with core.change() as change:
        for stage_row in change.stage_rows(row.number):
            if not stage_row.sealed:
                change.update_stage(stage_row, poisoned=reason)
        change.update_filter(row.name, dirty_boot=None)
        change.raise_generation()
