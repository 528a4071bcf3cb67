"""A rebuild: a coming chain beside the live one, filled from the source, then switched to.

    with store.rebuild("seen", spec) as new:
        new.add_many(keys_of_the_source)
        new.switch()

From entry on every writer adds to both chains, so keys that arrive meanwhile are in the new one
too; lookups ask the live one only. Without `switch` nothing changes. The switch is one commit: it
makes the coming chain live, buries the old one and raises the generation.
"""

from __future__ import annotations

import collections.abc as abc
from typing import TYPE_CHECKING

from bloomstore.catalog.view import CatalogChange
from bloomstore.errors import BloomStoreError, SpecError
from bloomstore.kernels import MAX_PRINTS_PER_CALL
from bloomstore.keys import Key, fingerprint_chunks
from bloomstore.spec.families import FilterSpec, resolved
from bloomstore.store import growth, writer
from bloomstore.store.core import Core
from bloomstore.store.view import FilterView, load_view

if TYPE_CHECKING:
    from bloomstore.store.store import Store


class Rebuild:
    """The coming chain of one filter."""

    def __init__(self, store: Store, name: str, view: FilterView) -> None:
        self._store = store
        self.name = name
        self._number = view.row.number
        self._chain = view.row.coming_chain
        self._seed = view.row.spec.seed
        self.is_switched = False

    def add_many(self, keys: abc.Iterable[Key]) -> int:
        """Adds keys of the source to the coming chain; returns how many were new to it."""
        added = 0
        for prints in fingerprint_chunks(keys, self._seed, MAX_PRINTS_PER_CALL):
            with self._store.changing("a rebuild") as core:
                view = self._view(core)
                assert view.coming is not None
                added += writer.add_to_chain(core, writer.coming_row(view.row), view.coming, prints)
        return added

    def switch(self) -> None:
        """Makes the coming chain the live one. The source must have been read completely."""
        with self._store.changing("a rebuild") as core:
            row = self._view(core).row
            with core.change() as change:
                bury_chain(change, core, row.number, row.live_chain)
                change.update_filter(
                    self.name,
                    spec=row.coming_spec,
                    live_chain=row.coming_chain,
                    coming_chain=None,
                    coming_spec=None,
                )
                change.raise_generation()
            self.is_switched = True
            growth.bury(core)

    def discard(self) -> None:
        """Gives the coming chain up; the live one goes on."""
        with self._store.changing("a rebuild") as core:
            row = self._view(core).row
            with core.change() as change:
                assert row.coming_chain is not None
                bury_chain(change, core, row.number, row.coming_chain)
                change.update_filter(self.name, coming_chain=None, coming_spec=None)
                change.raise_generation()
            growth.bury(core)

    def _view(self, core: Core) -> FilterView:
        view = load_view(core, self.name, self._number)
        if self.is_switched or self._chain is None or view.row.coming_chain != self._chain:
            raise BloomStoreError(f"the rebuild of {self.name!r} is over")
        return view


def begin(store: Store, name: str, spec: FilterSpec | None) -> Rebuild:
    """Starts a rebuild; one that a dead process left behind is buried first."""
    with store.changing("a rebuild") as core:
        row = load_view(core, name).row
        spec = resolved(row.spec if spec is None else spec)
        if spec.seed != row.spec.seed:
            raise SpecError(
                f"a rebuild keeps the seed of its filter: {row.spec.seed}, got {spec.seed}"
            )
        first = spec.stage(0, ())
        assert first is not None

        def announce(change: CatalogChange) -> None:
            if row.coming_chain is not None:
                bury_chain(change, core, row.number, row.coming_chain)
            change.update_filter(
                name,
                coming_chain=row.next_chain,
                coming_spec=spec,
                next_chain=row.next_chain + 1,
            )

        growth.new_stage(core, row, row.next_chain, 0, first, announce)
        growth.bury(core)
        return Rebuild(store, name, load_view(core, name))


def bury_chain(change: CatalogChange, core: Core, filter_number: int, chain: int) -> None:
    """Takes a chain out of the catalog; tombstones allow its files to be unlinked."""
    for stage in change.stage_rows(filter_number, chain):
        file_name = stage.header(core.store_id).file_name
        change.put_tombstone(stage.number, file_name, "dropped")
        change.delete_stage(stage)
    change.delete_journal(
        [
            entry.sequence
            for entry in change.journal()
            if entry.filter_number == filter_number and entry.chain == chain
        ]
    )
