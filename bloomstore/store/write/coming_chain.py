"""A rebuild: a coming chain beside the live one, filled from the source, then switched to.

    with store.rebuild("seen", spec) as new:
        new.add_many(keys_of_the_source)
        new.switch()

From entry on every writer adds to both chains, so keys that arrive meanwhile are in the new one
too; lookups ask the live one only. Without `switch` nothing changes. The switch is one commit: it
makes the coming chain live, buries the old one and raises the generation.

A chain is switched to only after proof: every key is asked for again in the coming chain after
it was added, and every block of its segments is compared with its checksum before the switch.

A rebuild that is to be resumed leaves its coming chain in the catalog when it ends without a
switch, or dies. Writers keep adding to both chains, so the resumed rebuild adds only the keys that
the source had not given yet.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.rows import FilterRow
from bloomstore.errors import BloomStoreError, SpecError, StoreFailed
from bloomstore.families.contract import FilterSpec
from bloomstore.filters.chain import Chain, Stage
from bloomstore.held import whole
from bloomstore.kernels import MAX_PRINTS_PER_CALL
from bloomstore.keys import Key, fingerprint_chunks
from bloomstore.segment.blocks import damaged_blocks
from bloomstore.store.durable import checkpoint, stage_files, trust
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.open_store import OpenStore
from bloomstore.store.view import FilterView, load_view
from bloomstore.store.write import bulk_load, growth, plan, writer
from bloomstore.store.write.plan import Prints
from bloomstore.store.write.stage_in_memory import Outgrown, StageInMemory

# How often a stage of many keys is written until it is full: a file costs its length, and a rebuild
# that dies reads again the keys that were not written.
_WRITES_PER_STAGE = 8


class Rebuild:
    """The coming chain of one filter."""

    def __init__(self, store: OpenStore, name: str, view: FilterView) -> None:
        assert view.row.coming_chain is not None
        self._store = store
        self.name = name
        self._number = view.row.number
        self._chain = view.row.coming_chain
        assert view.coming is not None
        self._capacity = view.coming.newest.row.spec.capacity
        self._seed = view.row.spec.seed
        self.is_switched = False
        self.added = 0  # keys that were new to the chain
        self._gathering: tuple[Chain, StageInMemory] | None = None
        self._unkept = 0

    @property
    def id(self) -> str:
        """Names this coming chain: no other one of this store, or of a copy of it, has the same."""
        return _id(self._store, self._number, self._chain)

    @whole
    def add_many(self, keys: abc.Iterable[Key]) -> int:
        """Adds keys of the source to the coming chain; returns how many were new to it.

        Raises StoreFailed if the chain does not report one of them afterwards.
        """
        added = 0
        for prints in fingerprint_chunks(keys, self._seed, MAX_PRINTS_PER_CALL):
            with self._store._changing("a rebuild") as core:
                view = self._view(core)
                assert view.coming is not None
                added += writer.add_to_chain(core, writer.coming_row(view.row), view.coming, prints)
                grown = self._view(core).coming
            assert grown is not None
            if not grown.find(prints).all():
                raise StoreFailed(f"the rebuild of {self.name!r} lost a key that it had added")
        return added

    @whole
    def feed(self, keys: abc.Iterable[Key]) -> bool:
        """Adds keys as fast as possible; returns whether all keys fed so far are durable.

        `keep` or a later call makes the others durable. Few keys go through the journal,
        many are gathered in memory (stage_in_memory.py). Raises Outgrown: keys that were not
        durable are then void.
        """
        if not self._is_large():
            self.added += self.add_many(keys)
            return True
        # Large chunks: after each call of a kernel this thread may wait 5 ms for the interpreter,
        # which the thread that reads the source holds.
        for prints in fingerprint_chunks(keys, self._seed, writer.TURN_KEYS):
            while len(prints):
                taken, new = self._insert(prints)
                self._unkept += taken  # only of the present stage: growing makes keys durable
                self.added += new
                if taken < len(prints):
                    self._grow()
                prints = prints[taken:]
        if self._unkept >= max(bulk_load.LEAST_KEYS, self._capacity // _WRITES_PER_STAGE):
            self.keep()
        return not self._unkept

    @whole
    def keep(self) -> None:
        """Makes all keys durable that were given to `feed`."""
        gathering = self._gathering
        if gathering is None or not self._unkept:
            return
        with self._store._changing("a rebuild") as core:
            coming = self._view(core).coming
            assert coming is not None
            _, stage = gathering
            try:
                stage.merge(core, coming.newest)
            except Outgrown:
                self._gathering, self._unkept = None, 0
                raise
            stage.write(core)
            stage_files.bury(core)
        self._unkept = 0

    def _is_large(self) -> bool:
        return self._capacity >= bulk_load.LEAST_KEYS

    def _insert(self, prints: Prints) -> tuple[int, int]:
        """Sets bits in memory; returns how many keys were gone through, and how many were new.

        When the stage gets full it may have gone through more: older stages have some of them.
        Raises StoreFailed if one of them is not found afterwards.
        """
        chain, stage = self._gathered()
        unknown = plan.unknown_to_older(chain, prints)
        taken, fresh = stage.insert(unknown)
        if not stage.has(unknown[:taken]):
            raise StoreFailed(f"the rebuild of {self.name!r} lost a key that it had added")
        return (len(prints) if taken == len(unknown) else taken), fresh

    def _gathered(self) -> tuple[Chain, StageInMemory]:
        """The newest stage of the coming chain in memory, and that chain."""
        if self._gathering is None:
            with self._store._changing("a rebuild") as core:
                view = self._view(core)
                assert view.coming is not None
                row, chain = writer.coming_row(view.row), view.coming
                if not plan.has_room(chain):
                    chain = growth.publish_next(core, row, chain)
                trust.prepare(core, chain)
                self._gathering = chain, StageInMemory(core, row, chain.newest)
        return self._gathering

    def _grow(self) -> None:
        """Writes the full stage; the next keys go into a new one."""
        self.keep()
        full, self._gathering = self._gathered()[1].number, None
        with self._store._changing("a rebuild") as core:
            view = self._view(core)
            assert view.coming is not None
            if view.coming.newest.row.number == full:  # else a writer has found it full, too
                growth.grow(core, writer.coming_row(view.row), view.coming, self.added)

    @whole
    def switch(self) -> None:
        """Makes the coming chain the live one. The source must have been read completely.

        Raises StoreFailed, and changes nothing, when a segment of it cannot be trusted.
        """
        self.keep()
        with self._store._changing("a rebuild") as core:
            self._prove(core)
            row = self._view(core).row
            with core.change() as change:
                stage_files.bury_chain(change, core, row.number, row.live_chain)
                change.update_filter(
                    self.name,
                    spec=row.coming_spec,
                    live_chain=row.coming_chain,
                    stages=row.coming_stages,
                    coming_chain=None,
                    coming_stages=0,
                    coming_spec=None,
                )
                change.raise_generation()
            self.is_switched = True
            stage_files.bury(core)

    @whole
    def discard(self) -> None:
        """Gives up the coming chain, if that was not done yet; the live one stays."""
        with self._store._changing("a rebuild") as core:
            self.discard_in(core)

    def discard_in(self, core: Core) -> None:
        """The same, called under the writer lock."""
        row = load_view(core, self.name, self._number).row
        if row.coming_chain == self._chain:
            stage_files.discard_coming(core, row)

    def _prove(self, core: Core) -> None:
        """Compares every block with its checksum; the lock keeps writers from changing one."""
        checkpoint.every_filter(core)
        coming = self._view(core).coming
        assert coming is not None
        doubt = doubt_of(coming)
        with core.catalog.read() as view:
            left = {entry.number for entry in view.journal()}
        for stage in coming.stages:
            file = core.folder.segments / stage.row.header(core.store_id).file_name
            if not doubt and stage.row.number in left:
                doubt = f"{file} could not be written"
            elif not doubt and _differs(core, stage):
                doubt = f"{file} does not fit its checksums"
        if doubt:
            raise StoreFailed(f"the rebuild of {self.name!r} cannot be switched to: {doubt}")

    def _view(self, core: Core) -> FilterView:
        view = load_view(core, self.name, self._number)
        if self.is_switched or view.row.coming_chain != self._chain:
            raise BloomStoreError(
                f"the rebuild of {self.name!r} is over: it was switched to or given up, by hand or"
                " because writers found it full"
            )
        return view


def _differs(core: Core, stage: Stage) -> bool:
    segment = stage.segment
    assert segment is not None
    with core.catalog.read() as view:
        checksums = view.checksums(stage.row.number, segment.header.blocks)
    if checksums is None:
        return True
    every = range(segment.header.blocks)
    damaged, set_bits = damaged_blocks(segment.header, segment.shared, checksums, every)
    return bool(damaged) or set_bits != stage.row.set_bits


def doubt_of(chain: Chain) -> str:
    """Why a coming chain cannot become the live one, nor be resumed; "" if it can."""
    return chain.doubt or chain.damage or ""


def _id(store: OpenStore, number: int, chain: int) -> str:
    return f"{store.incarnation}/{number}/{chain}"


def declared_capacity(row: FilterRow) -> int:
    """The capacity that a filter was asked to have, at creation or by a later rebuild."""
    return row.spec.first_capacity if row.declared is None else row.declared


@whole
def is_live(store: OpenStore, name: str, chain_id: str) -> bool:
    """Whether the chain with this id was switched to, and no other one since."""
    row = load_view(store._core, name).row
    return _id(store, row.number, row.live_chain) == chain_id


@whole
def left_behind(store: OpenStore, name: str) -> Rebuild | None:
    """The rebuild of this filter that was begun, by any process, and not ended."""
    with store._changing("a rebuild") as core:
        return _left_behind(store, core, name)


def _left_behind(store: OpenStore, core: Core, name: str) -> Rebuild | None:
    view = load_view(core, name)
    return Rebuild(store, name, view) if view.coming and view.coming.stages else None


@whole
def resume(store: OpenStore, name: str, chain_id: str) -> Rebuild | None:
    """The rebuild with this id, if its coming chain still exists and can be trusted."""
    with store._changing("a rebuild") as core:
        found = _left_behind(store, core, name)
        if found is None or found.id != chain_id:
            return None
        coming = load_view(core, name).coming
        return None if coming is None or doubt_of(coming) else found


@whole
def begin(
    store: OpenStore, name: str, spec: FilterSpec | None, *, is_declared: bool = True
) -> Rebuild:
    """Starts a rebuild; one that a dead process left behind is buried first.

    is_declared: the caller asks for this capacity. Otherwise it suits the present keys, and
    later rebuilds go by the capacity that was asked for before.
    """
    with store._changing("a rebuild") as core:
        return begin_in(store, core, name, spec, is_declared=is_declared)


def begin_in(
    store: OpenStore, core: Core, name: str, spec: FilterSpec | None, *, is_declared: bool = True
) -> Rebuild:
    """The same, called under the writer lock."""
    row = load_view(core, name).row
    declared = declared_capacity(row)
    if spec is not None and is_declared:
        declared = spec.first_capacity
    spec = (row.spec if spec is None else spec).resolved()
    if spec.seed != row.spec.seed:
        raise SpecError(f"a rebuild keeps the seed of its filter: {row.spec.seed}, got {spec.seed}")
    first = spec.stage(0, ())
    assert first is not None

    def announce(change: CatalogChange) -> None:
        if row.coming_chain is not None:
            stage_files.bury_chain(change, core, row.number, row.coming_chain)
        change.update_filter(
            name,
            coming_chain=row.next_chain,
            coming_stages=0,
            coming_spec=spec,
            next_chain=row.next_chain + 1,
            declared=declared,
        )

    stage_files.new_stage(core, row, row.next_chain, 0, first, announce)
    stage_files.bury(core)
    return Rebuild(store, name, load_view(core, name))
