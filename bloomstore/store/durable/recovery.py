"""Finishes work that others left: journal rows that are not applied, words that are not set.

    finish          every new holder of the writer lock calls it first. A holder that died between
                    its commit and its bits left rows that were acknowledged or nearly so, and
                    running readers would keep answering "no"
    recover         an opener that is alone, or finds the words of another boot, calls it: such
                    words mean nothing, and pages may have been lost with the machine, so the bits
                    of every row are stored again
    finish_missing  every other opener calls it: it tests the bits of all rows and stores them again
                    if one is missing. So does the first use of a stage (trust.py)

Replay is idempotent and only sets bits: running it twice, or half, or beside readers, is safe.
Nothing is deleted here; rows go at the next checkpoint.
"""

from __future__ import annotations

import collections.abc as abc
import math

import numpy as np

from bloomstore import kernels
from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.catalog.view import CatalogView
from bloomstore.crash import crash_point
from bloomstore.filters.count import keys_from_bits
from bloomstore.filters.damaged import undamaged_bits
from bloomstore.segment.header import filter_number, segment_number
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import reasons
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import APPLIED, APPLYING, BOOT, GENERATION


def rollback(core: Core) -> str | None:
    """Why the catalog must be older than the files beside it, if it is.

    Every number is committed before its file is made, and every commit before its number is in the
    words, so files and words are looked at first.
    """
    numbers = [segment_number(path.name) for path in core.folder.segment_files()]
    committed = core.catalog.witness.number
    with core.catalog.read() as view:
        next_number = view.counters().next_number
        last = view.transaction
    if last < committed:
        return f"the catalog was rolled back: its last commit is {last}, there was {committed}"
    if max(numbers, default=0) < next_number:
        return None
    return (
        f"the catalog was rolled back: it has given out numbers below {next_number},"
        f" a file has number {max(numbers)}"
    )


def forgotten_files(core: Core, view: CatalogView) -> list[str]:
    """Names of segments of filters that the catalog does not know since it was rolled back.

    The names of those filters are lost. A new filter of the same name must not count as empty.
    """
    below = view.identity().forgotten_below
    if not below:
        return []
    known = {row.number for row in view.sound_filter_rows()}
    names = [path.name for path in core.folder.segment_files()]
    return [
        name
        for name in names
        if 0 < segment_number(name) < below and filter_number(name) not in known
    ]


def finish(core: Core) -> None:
    """Makes words and bits agree with the catalog. Called under the writer lock."""
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


def finish_missing(core: Core) -> None:
    """Applies the whole journal if a bit of it is missing, even if the words say it is applied.

    Called under the writer lock. The words are those of a running boot, a segment need not be: a
    snapshot of a live store, or a file put back, has pages that are older than the words.
    """
    with core.catalog.settled() as view:
        rows = list(view.journal())
    by_stage: dict[tuple[int, int, int, int], list[JournalRow]] = {}
    for row in rows:
        by_stage.setdefault((row.filter_number, row.chain, row.stage, row.number), []).append(row)
    if any(is_missing(core, entries) for entries in by_stage.values()):
        replay(core, rows)


def is_missing(core: Core, entries: list[JournalRow]) -> bool:
    """Whether a bit of these rows, all of one stage, is not set or cannot be looked at."""
    stage_row = _living(core, entries[0])
    if stage_row is None:
        return False
    segment = core.mapped(stage_row)
    if segment is None:
        return stage_row.poisoned is None
    prints = np.concatenate([entry.prints for entry in entries])
    return not kernels.find([segment.shared], [stage_row.spec.geometry], prints).all()


def _living(core: Core, row: JournalRow) -> StageRow | None:
    """The stage that a journal row is for, unless it is gone or sealed."""
    with core.catalog.read() as view:
        stage_row = view.stage_row(row.filter_number, row.chain, row.stage)
    if stage_row is None or stage_row.number != row.number or stage_row.sealed:
        return None
    return stage_row


def replay(core: Core, rows: abc.Iterable[JournalRow]) -> None:
    """Sets all bits of these rows, unconditionally; a stage that cannot be mapped is poisoned."""
    for row in rows:
        stage_row = _living(core, row)
        if stage_row is None:
            continue
        segment = core.mapped(stage_row)
        if segment is not None:
            kernels.apply(segment.shared, stage_row.spec.geometry, row.prints)
            crash_point("recovery: row applied")
        elif stage_row.poisoned is None:
            core.poison(stage_row, reasons.UNAPPLIED)


def _finish_counting(core: Core) -> None:
    if core.words[APPLYING]:
        _recount(core, core.words[APPLYING])
        core.words[APPLYING] = 0


def _recount(core: Core, number: int) -> None:
    """Counts the bits, and guesses the keys, after a `process` add died before its counts."""
    with core.catalog.read() as view:
        for row in view.sound_filter_rows():
            for stage_row in view.stage_rows(row.number):
                if stage_row.number == number and not stage_row.sealed:
                    segment = core.mapped(stage_row)
                    if segment is not None:
                        set_bits = kernels.count_bits(segment.shared)
                        counted = stage_row.with_counts(set_bits, stage_row.keys)
                        usual = undamaged_bits(counted)
                        keys = keys_from_bits(stage_row.spec.geometry, usual).high
                        segment.words[WORD_SET_BITS] = set_bits
                        if math.isfinite(keys):
                            known = segment.words[WORD_KEYS]
                            segment.words[WORD_KEYS] = max(known, math.ceil(keys))


def _doubt_lost_keys(core: Core, row: FilterRow) -> None:
    """Poisons the stages that lost keys of durability `process` when the machine went down."""
    with core.change() as change:
        for stage_row in change.stage_rows(row.number):
            if not stage_row.sealed:
                change.update_stage(stage_row, poisoned=reasons.KEYS_LOST)
        change.update_filter(row.name, dirty_boot=None)
        change.raise_generation()
