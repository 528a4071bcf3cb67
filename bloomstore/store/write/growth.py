"""Growing a chain: a full stage gets a successor, then it is sealed.

Runs under the writer lock.
"""

from __future__ import annotations

from bloomstore.catalog.rows import FilterRow
from bloomstore.crash import crash_point
from bloomstore.errors import FilterFull, StoreFailed
from bloomstore.filters.chain import Chain
from bloomstore.store.durable import checkpoint, stage_files, trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.write.plan import has_room


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
    if chain.newest.is_transient:
        raise StoreFailed(f"filter {row.name!r} cannot take keys now: {chain.newest.doubt}")
    fresh = stage_files.next_stage(core, row, [stage.row for stage in chain.stages])
    if fresh is None:
        if chain.doubt is not None:
            raise StoreFailed(f"filter {row.name!r} cannot take keys: {chain.doubt}")
        raise FilterFull(row.name, chain.newest.row.spec.capacity, added)
    crash_point("seal: next stage published")
    return Chain([*chain.stages, trust.stage_of(core, fresh)])
