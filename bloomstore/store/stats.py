"""What a filter is like at this moment, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from bloomstore.catalog.rows import Durability, StageRow
from bloomstore.filters.accuracy import distinct_keys, error_at
from bloomstore.filters.estimate import Estimate
from bloomstore.spec.families import FilterSpec, promised_error
from bloomstore.store.core import Core
from bloomstore.store.view import FilterState, FilterView, counts_of
from bloomstore.theory.scalable import compound_error


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage."""

    stage: int
    geometry: str
    capacity: int
    keys: int
    bits: int
    fill: float
    fill_limit: float
    target_error: float
    error_rate: float
    sealed: bool
    file: str


@dataclass(frozen=True, slots=True)
class FilterStats:
    """One filter.

    keys: how many were new when they were added. target_error: what the family promises for this
    many stages. error_rate: what the fill of the stages makes of it now.
    """

    name: str
    spec: FilterSpec
    durability: Durability
    state: FilterState
    keys: int
    bits: int
    file_bytes: int
    bits_per_key: float | None
    fill: float
    target_error: float
    error_rate: float
    journal_rows: int
    stages: tuple[StageStats, ...]


def stats_of(core: Core, view: FilterView) -> FilterStats:
    """Numbers of the live chain."""
    rows = _current(core, view)
    headers = [row.header(core.store_id) for row in rows]
    stages = tuple(
        StageStats(
            stage=row.stage,
            geometry=str(row.spec.geometry),
            capacity=row.spec.capacity,
            keys=row.keys,
            bits=row.spec.geometry.vector_bits,
            fill=row.set_bits / row.spec.geometry.vector_bits,
            fill_limit=row.spec.fill_limit,
            target_error=row.spec.target_error,
            error_rate=error_at(row.spec.geometry, row.set_bits),
            sealed=row.sealed,
            file=header.file_name,
        )
        for row, header in zip(rows, headers, strict=True)
    )
    keys = sum(stage.keys for stage in stages)
    bits = sum(stage.bits for stage in stages)
    with core.catalog.read() as catalog:
        journal_rows = sum(entry.filter_number == view.row.number for entry in catalog.journal())
    return FilterStats(
        name=view.row.name,
        spec=view.row.spec,
        durability=view.row.durability,
        state=view.state,
        keys=keys,
        bits=bits,
        file_bytes=sum(header.file_bytes for header in headers),
        bits_per_key=bits / keys if keys else None,
        fill=sum(row.set_bits for row in rows) / bits if bits else 0.0,
        target_error=promised_error(view.row.spec, [row.spec for row in rows]),
        error_rate=compound_error([stage.error_rate for stage in stages]),
        journal_rows=journal_rows,
        stages=stages,
    )


def count_of(core: Core, view: FilterView) -> Estimate:
    """Distinct keys of the live chain, from its bits."""
    return distinct_keys((row.spec.geometry, row.set_bits) for row in _current(core, view))


def _current(core: Core, view: FilterView) -> list[StageRow]:
    return counts_of(core, view.row.number, view.row.live_chain)
