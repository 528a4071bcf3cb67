"""How many bits of a stage are set and how many keys were new, as a writer must know it.

Durability `commit`: the counts are in the last journal row of the stage, else in its own row; this
process remembers them until another one writes. Durability `process`: they are words of the
segment, and the filter's row says `dirty` before the first of them changes.

Runs under the writer lock.
"""

from __future__ import annotations

from bloomstore.catalog.rows import FilterRow
from bloomstore.crash import crash_point
from bloomstore.filters.chain import Stage
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import APPLIED, GENERATION


def of_stage(core: Core, stage: Stage) -> tuple[int, int]:
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
    """Marks the filter's row before the first bit: its segments are ahead of the catalog."""
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
        segment = None if stage_row.sealed else trust.stage_of(core, stage_row).segment
        if segment is not None:
            segment.words[WORD_SET_BITS] = stage_row.set_bits
            segment.words[WORD_KEYS] = stage_row.keys
            segment.clear_flags()
    with core.catalog.write() as change:
        change.update_filter(row.name, dirty_boot=core.boot)
    core.dirty_tenure[row.number] = core.lock.tenure
    crash_point("process add: marked dirty")
