"""The spec of a rebuilt filter and its size: one stage for the keys there are.

In: the spec of the filter and the number of keys, out: the same family with another capacity and,
where asked, another target error; and the numbers of its first stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from bloomstore.families.contract import FilterSpec
from bloomstore.rebuild.source import Source
from bloomstore.segment.header import HEADER_BYTES, PAGE_BYTES
from bloomstore.store.filter import Filter
from bloomstore.store.write.coming_chain import declared_capacity

# Room for keys that come after the rebuild, before a second stage is needed.
HEADROOM = 1.1


@dataclass(frozen=True, slots=True)
class Plan:
    """A spec, the rows it was made for, and the numbers of its first stage."""

    spec: FilterSpec
    rows: int | None  # as the source counts them
    capacity: int
    bits: int
    file_bytes: int
    stages: int = 1


def plan_rebuild(
    filter_: Filter,
    source: Source,
    *,
    spec: FilterSpec | None = None,
    capacity: int | None = None,
    target_error: float | None = None,
) -> Plan:
    """The plan for these keys; without a capacity the source is counted, else the filter's bits.

    It has room for as many keys as the filter, or its guard, was declared for: a table that was
    emptied fills again. A fixed filter gets no smaller, unless a capacity is given.
    """
    rows = source.count()
    if spec is None:
        keys = capacity
        if keys is None:
            declared = source.declared or declared_capacity(filter_._current().row)
            known = _keys_of(filter_) if rows is None else rows
            keys = max(declared, ceil(HEADROOM * known), filter_.spec.promised_keys)
        spec = filter_.spec.for_keys(keys, target_error)
    first = spec.stage(0, ())
    assert first is not None
    pages = -(-first.geometry.vector_bytes // PAGE_BYTES)
    return Plan(
        spec=spec,
        rows=rows,
        capacity=first.capacity,
        bits=first.geometry.vector_bits,
        file_bytes=HEADER_BYTES + (pages + 1) * PAGE_BYTES,
    )


def _keys_of(filter_: Filter) -> float:
    estimate = filter_.estimate_count().value
    return estimate if isfinite(estimate) else filter_.stats().keys
