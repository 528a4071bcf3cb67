"""The numbers of a filter: keys, bits, fill, errors, stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog.rows import Durability, StageRow
from bloomstore.families.contract import FilterSpec
from bloomstore.filters.count import Counted, distinct_keys
from bloomstore.filters.damaged import error_of, undamaged_bits, with_damage
from bloomstore.filters.estimate import Estimate
from bloomstore.filters.overlap import errors_up_to
from bloomstore.segment.segment import READ_WHOLE_BYTES
from bloomstore.store.process.open_files import Core
from bloomstore.store.view import FilterState, FilterView, counts_of

Vectors = dict[int, NDArray[np.uint8]]


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

    keys: how many were new when they were added. target_error: the promise of the family for this
    many stages. error_rate: the present error, computed from the bits; that of several stages is in
    part measured by a sample (filters/overlap.py).
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
    vectors = _vectors(view)
    headers = [row.header(core.store_id) for row in rows]
    stages = tuple(
        StageStats(
            stage=row.stage,
            geometry=str(row.spec.geometry),
            capacity=row.spec.capacity,
            keys=row.keys,
            bits=row.spec.geometry.vector_bits,
            fill=min(1.0, row.set_bits / row.spec.geometry.vector_bits),
            fill_limit=row.spec.fill_limit,
            target_error=row.spec.target_error,
            error_rate=error_of(row, vectors.get(row.number)),
            sealed=row.sealed,
            file=header.file_name,
        )
        for row, header in zip(rows, headers, strict=True)
    )
    keys = sum(stage.keys for stage in stages)
    bits = sum(stage.bits for stage in stages)
    with core.catalog.read() as catalog:
        numbers = [row.number for row in catalog.stage_rows(view.row.number)]
        journal_rows = sum(catalog.journal_count(number) for number in numbers)
    return FilterStats(
        name=view.row.name,
        spec=view.row.spec,
        durability=view.row.durability,
        state=view.told_state,
        keys=keys,
        bits=bits,
        file_bytes=sum(header.file_bytes for header in headers),
        bits_per_key=bits / keys if keys else None,
        fill=min(1.0, sum(row.set_bits for row in rows) / bits) if bits else 0.0,
        target_error=view.row.spec.promised_error([row.spec for row in rows]),
        error_rate=_error_of(rows, vectors, [stage.error_rate for stage in stages]),
        journal_rows=journal_rows,
        stages=stages,
    )


def count_of(core: Core, view: FilterView) -> Estimate:
    """Distinct keys of the live chain, from its counts and bits."""
    rows = _current(core, view)
    vectors = _vectors(view)
    return distinct_keys(
        [
            Counted(
                row.spec.geometry,
                undamaged_bits(row),
                row.keys,
                None if row.damaged else vectors.get(row.number),
            )
            for row in rows
        ]
    )


def _error_of(rows: list[StageRow], vectors: Vectors, errors: list[float]) -> float:
    """Error of the whole chain; stages that cannot be mapped count as independent."""
    known = [(vectors[row.number], row.spec.geometry) for row in rows if row.number in vectors]
    found = errors_up_to(known if len(known) == len(rows) else [], errors)
    return found[-1].error if found else 0.0


def _vectors(view: FilterView) -> Vectors:
    return {
        stage.row.number: stage.segment.vector
        for stage in view.live.stages
        if stage.segment is not None
    }


def _current(core: Core, view: FilterView) -> list[StageRow]:
    """The stages as they are now; every block of a small one is verified first."""
    found: dict[int, set[int]] = {}
    for stage in view.live.stages:
        if stage.segment is not None:
            if len(stage.segment.shared) <= READ_WHOLE_BYTES:
                stage.segment.verify_all()
            found[stage.row.number] = stage.segment.damaged
    rows = counts_of(core, view.row.number, view.row.live_chain)
    return [with_damage(row, found[row.number]) if found.get(row.number) else row for row in rows]
