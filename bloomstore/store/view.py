"""A filter at one generation: its row, its chains, and whether its "no" may be believed.

In: the catalog, out: an immutable FilterView. The generation word is read before the rows: rows
can be newer than the word says (then one reload too many follows), never older.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bloomstore.catalog.journal_rows import JournalRow
from bloomstore.catalog.rows import FilterRow, StageRow
from bloomstore.catalog.view import CatalogView
from bloomstore.errors import DamagedRow, FilterNotFound, StoreFailed
from bloomstore.filters.chain import Chain
from bloomstore.segment.segment import WORD_KEYS, WORD_SET_BITS
from bloomstore.store.durable import reasons
from bloomstore.store.durable.trust import chain_of, stage_of
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import GENERATION


class StateName(StrEnum):
    """The kinds of trust and doubt."""

    SOUND = "sound"
    FENCED = "fenced"
    DIRTY = "dirty"
    DAMAGED = "damaged"
    NEEDS_RECOVERY = "needs recovery"


@dataclass(frozen=True, slots=True)
class FilterState:
    """Whether a filter is in order, and if not, why some or all answers are "maybe".

    in_part: only some blocks are damaged; keys that need no other bits are "maybe".
    """

    name: StateName
    reason: str = ""
    in_part: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether everything is in order."""
        return self.name is StateName.SOUND

    @property
    def is_certain(self) -> bool:
        """Whether a "no" is possible, and then certain."""
        return self.is_sound or self.in_part

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else str(self.name)


SOUND = FilterState(StateName.SOUND)


@dataclass(frozen=True, slots=True)
class FilterView:
    """One filter at one generation."""

    generation: int
    row: FilterRow
    live: Chain
    coming: Chain | None
    state: FilterState
    # Whether another look at the same generation would find the same state.
    is_lasting: bool = field(init=False)

    def __post_init__(self) -> None:
        passes = self.live.is_doubt_transient or (
            self.coming is not None and self.coming.is_doubt_transient
        )
        is_lasting = self.state.name is not StateName.NEEDS_RECOVERY and not passes
        object.__setattr__(self, "is_lasting", is_lasting)

    @property
    def told_state(self) -> FilterState:
        """The state shown to users: damaged blocks do not make everything "maybe"."""
        damage = self.live.damage if self.state.is_sound else None
        if damage is None:
            return self.state
        return FilterState(StateName.DAMAGED, damage, in_part=True)


def load_view(core: Core, name: str, number: int | None = None) -> FilterView:
    """The filter as the catalog has it now.

    Raises FilterNotFound when there is none of this name, or when it is not the one with this
    number any more.
    """
    generation = core.words[GENERATION]
    with core.catalog.read() as view:
        row = view.filter_row(name)
        if row is None or (number is not None and row.number != number):
            raise FilterNotFound(name)
        core.names[row.number] = name
        live_rows = view.stage_rows(row.number, row.live_chain)
        coming_rows = (
            None if row.coming_chain is None else view.stage_rows(row.number, row.coming_chain)
        )
        unapplied: list[JournalRow] = []
        unreadable: str | None = None
        try:
            if core.options.read_only:
                unapplied = _unapplied(view, live_rows)
        except DamagedRow as error:
            unreadable = str(error)
    live = chain_of(core, live_rows, row.stages)
    coming = None if coming_rows is None else chain_of(core, coming_rows, row.coming_stages)
    state = _state(core, row, live, unapplied)
    if unreadable is not None:
        state = FilterState(StateName.DAMAGED, unreadable)
    return FilterView(generation, row, live, coming, state)


def _unapplied(view: CatalogView, stages: list[StageRow]) -> list[JournalRow]:
    """Journal rows whose bits a reader cannot take for granted: it must not replay them."""
    return [entry for stage in stages for entry in view.journal_of(stage.number)]


def _state(core: Core, row: FilterRow, chain: Chain, unapplied: list[JournalRow]) -> FilterState:
    if core.doubt is not None:
        return FilterState(StateName.DAMAGED, core.doubt)
    if chain.doubt is not None:
        return FilterState(StateName.DAMAGED, chain.doubt)
    if row.dirty_boot is not None and row.dirty_boot != core.boot:
        return FilterState(StateName.DIRTY, str(reasons.KEYS_LOST))
    for entry in unapplied:
        if not chain.find(entry.prints).all():
            reason = f"journal row {entry.sequence} is not applied; open the store for writing once"
            return FilterState(StateName.NEEDS_RECOVERY, reason)
    if row.fences:
        return FilterState(StateName.FENCED, "; ".join(sorted(map(str, row.fences.values()))))
    return SOUND


def counts_of(core: Core, number: int, chain: int) -> list[StageRow]:
    """The stages of a chain with their counts of this moment, for reports."""
    with core.catalog.read() as view:
        row = core.owner(view, number)
        stages = view.stage_rows(number, chain)
        latest = [view.last_journal_row(stage.number) for stage in stages]
    if row is not None and row.dirty_boot == core.boot:
        return [_with_hints(core, stage) for stage in stages]
    return [
        stage if entry is None else stage.with_counts(entry.set_bits, entry.keys)
        for stage, entry in zip(stages, latest, strict=True)
    ]


def _with_hints(core: Core, stage: StageRow) -> StageRow:
    if stage.sealed:
        return stage
    segment = stage_of(core, stage).segment
    return (
        stage
        if segment is None
        else stage.with_counts(segment.words[WORD_SET_BITS], segment.words[WORD_KEYS])
    )


# Errors of the catalog that make a reader answer "maybe" instead of raising.
READING_ERRORS = (StoreFailed, DamagedRow)
