"""Filter, the handle of one filter: lookups, adds, numbers, fences.

Reading takes no lock: the generation word is compared once per call, and only when it moved is
the catalog read again. A filter whose "no" cannot be believed answers "maybe" to everything;
`state` says why. Handles are safe in several threads and after a fork; they raise StoreClosed
once their store is closed and FilterNotFound once their filter is dropped.

Not here: the order of writing (write/), single lookups on the fast path (kernels.OneKey).
"""

from __future__ import annotations

import collections.abc as abc
import logging
import threading
import uuid
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.catalog.rows import Durability
from bloomstore.errors import FilterFull
from bloomstore.families.contract import FilterSpec
from bloomstore.filters.estimate import Estimate
from bloomstore.held import mine, surrender, whole
from bloomstore.kernels import MAX_PRINTS_PER_CALL, NEVER, OneKey
from bloomstore.keys import Key, fingerprint, fingerprint_chunks, is_column
from bloomstore.store.options import check_reason
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.open_store import OpenStore
from bloomstore.store.process.words import GENERATION
from bloomstore.store.stats import FilterStats, count_of, stats_of
from bloomstore.store.view import (
    READING_ERRORS,
    FilterState,
    FilterView,
    StateName,
    load_view,
)
from bloomstore.store.write import bulk_load, writer
from bloomstore.store.write.batch import Batch
from bloomstore.store.write.batch_blocks import Batches
from bloomstore.store.write.group_commit import Group

log = logging.getLogger("bloomstore")

# Keys of a batch that are looked up to guess whether all of it is known already. If it is not, the
# writer looks up each key again, and looking up all of them here would waste 9 ns per key.
_SAMPLE = 64


class FilterStore(OpenStore, Protocol):
    """The store of a filter, as its handle needs it: with batches, group commit and views."""

    _views: threading.RLock
    _batches: Batches
    _group: Group

    def _require_writable(self) -> None:
        """Raises StoreClosed or StoreReadOnly."""

    def _has(self, core: Core) -> bool:
        """Whether these are the open files of this store still."""


class Filter(OneKey):
    """One filter of a store.

    seen = store["seen"]
    seen.add("alice")          # True if it was not reported before
    "alice" in seen            # False is certain
    """

    def __init__(self, store: FilterStore, view: FilterView) -> None:
        super().__init__(view.row.spec.seed)
        self._store = store
        self._number = view.row.number
        self.name = view.row.name
        self._view = view
        self._batches = store._batches.open
        self._use(store._core, view)

    @property
    def number(self) -> int:
        """The filter's number in its store, never reused: a new filter of the same name differs."""
        return self._number

    @property
    @whole
    def spec(self) -> FilterSpec:
        """The family and its parameters."""
        return self._current().row.spec

    @property
    @whole
    def durability(self) -> Durability:
        """Whether an acknowledged key survives power cuts ("commit") or its process ("process")."""
        return self._current().row.durability

    @property
    @whole
    def state(self) -> FilterState:
        """Whether the filter is in order, and if not, why some or all answers are "maybe"."""
        return self._current().told_state

    @property
    def was_sound(self) -> bool:
        """Whether the state was sound at the last lookup; the generation is not read again."""
        return self.is_quick or self._view.state.is_sound

    @whole
    def may_contain_many(self, keys: abc.Iterable[Key]) -> NDArray[np.bool_]:
        """Which of the keys may have been added, in order. False is certain.

        Takes lists, generators, numpy integer and string arrays, Arrow arrays, pandas and polars
        series. Several threads ask for large integer arrays; BLOOMSTORE_THREADS limits them.
        """
        view = self._current()
        if view.state.is_sound and self._store._batches.mine is None:
            answers = view.live.find_keys(keys, self._seed)
            if answers is not None:
                self._take_fast_path(view)
                return answers
        chunks = fingerprint_chunks(keys, self._seed)
        found = np.zeros(len(keys) if isinstance(keys, abc.Sized) else 0, np.bool_)
        done = 0
        for prints in chunks:
            end = done + len(prints)
            if end > len(found):  # an iterator does not say how many keys will come
                found = np.concatenate([found, np.zeros(max(done, len(prints)), np.bool_)])
            found[done:end] = self._find(prints)
            done = end
        return found[:done]

    @whole
    def add_many(self, keys: abc.Iterable[Key]) -> int:
        """Adds keys and returns how many the filter did not report before.

        Takes what may_contain_many takes. Large inputs are added in chunks, each durable by
        itself: when an error ends the call, keys of earlier chunks may stay added. Several threads
        share large chunks; BLOOMSTORE_THREADS limits them.
        """
        batch = self._store._batches.mine
        if batch is not None:
            return self._collect(batch, fingerprint_chunks(keys, self._seed, MAX_PRINTS_PER_CALL))
        view = self._current()
        is_bulk = bulk_load.is_bulk(view, keys)
        in_turns = view.row.durability == "process" and is_column(keys)
        most = writer.TURN_KEYS if is_bulk or in_turns else MAX_PRINTS_PER_CALL
        chunks = fingerprint_chunks(keys, self._seed, most)
        if is_bulk:
            with self._store._changing("a bulk load") as core:
                view = self._certain()
                if bulk_load.is_bulk(view, keys):
                    return bulk_load.load(core, view, chunks)
        added = 0
        try:
            if in_turns:
                core = self._store._core
                while (new := writer.add_turn(core, self._certain, chunks)) is not None:
                    added += new
                return added
            for prints in chunks:
                added += self._add(prints)
        except FilterFull as full:
            raise FilterFull(self.name, full.capacity, added + full.added) from None
        return added

    @whole
    def stats(self) -> FilterStats:
        """Keys, stages, bits, fill, errors, state."""
        return stats_of(self._store._core, self._current())

    @whole
    def estimate_count(self) -> Estimate:
        """How many different keys were added, estimated from counts and bits."""
        return count_of(self._store._core, self._current())

    @property
    @whole
    def fences(self) -> dict[str, str]:
        """Token -> text of the reason of every fence that stands now, raised by any process."""
        return {token: reason.text for token, reason in self._fences().items()}

    @whole
    def fences_for(self, code: ReasonCode) -> list[str]:
        """Tokens of the fences that stand now for the reason with this code."""
        return [token for token, reason in self._fences().items() if reason.code == code]

    def _fences(self) -> dict[str, Reason]:
        return load_view(self._store._core, self.name, self._number).row.fences

    @whole
    def fence(self, reason: str | Reason, *, renew: bool = False) -> str:
        """Makes every lookup in every process answer "maybe" until `unfence(token)`.

        Kept in the catalog: a fence survives crashes and restarts. With `renew` it takes the place
        of fences for the same reason, whose tokens lower nothing from then on: for one with the
        same code, or, where the reason is only text, with the same text.
        """
        token, why = uuid.uuid4().hex, check_reason(reason)
        with self._store._changing("fence") as core:
            self._certain()  # raises when the filter was dropped
            with core.change() as change:
                fences = change.update_filter(self.name).fences
                if renew:
                    fences = {old: known for old, known in fences.items() if not why.is_same(known)}
                change.update_filter(self.name, fences=fences | {token: why})
                change.raise_generation()
        return token

    @whole
    def unfence(self, *tokens: str) -> None:
        """Lowers fences; an unknown token is no error (its fence may have been lowered before)."""
        with self._store._changing("unfence") as core:
            self._certain()
            with core.change() as change:
                row = change.update_filter(self.name)
                left = {known: why for known, why in row.fences.items() if known not in tokens}
                change.update_filter(self.name, fences=left)
                change.raise_generation()

    @whole
    def _contains_slowly(self, key: Key) -> bool:
        return bool(self._find(_one_print(key, self._seed))[0])

    @whole
    def _add_slowly(self, key: Key) -> bool:
        is_new = self._add(_one_print(key, self._seed)) == 1
        # From now on the compiled OneKey may add by itself, as long as this tenure lasts.
        self._dirty_tenure = self._core.dirty_tenure.get(self._number, -1)
        return is_new

    def _add_unknown_slowly(self, prints: NDArray[np.uint64], generation: int) -> bool:
        """Adds durably a key that OneKey has found in no stage of this generation."""
        least = len(mine.held)
        try:
            view = self._view
            if view.generation != generation:
                return self._add(prints) == 1
            group, core = self._store._group, self._store._core
            return group.add(core, self._certain, prints, keep=False, seen=view, handle=self) == 1
        except BaseException:  # like `whole`, but faster
            surrender(least)
            raise

    def _find(self, prints: NDArray[np.uint64]) -> NDArray[np.bool_]:
        view = self._current()
        if not view.state.is_sound:
            return np.ones(len(prints), np.bool_)
        answers = view.live.find(prints)
        self._take_fast_path(view)
        batch = self._store._batches.mine
        return answers if batch is None else answers | batch.find(self._number, prints)

    def _add(self, prints: NDArray[np.uint64]) -> int:
        batch = self._store._batches.mine
        if batch is not None:
            return self._collect(batch, [prints])
        self._store._require_writable()
        view = self._current()
        self._take_fast_path(view)
        # A key that a sound filter without a coming chain reports is durable already. The second
        # look at the generation makes sure that no rebuild had begun by then.
        core = self._store._core
        keep = view.row.durability == "process"
        is_kept = keep and core.lock.keeper.is_free  # then the writer lock costs nothing
        if (
            view.state.is_sound
            and view.coming is None
            and not is_kept
            and view.live.find(prints[:_SAMPLE]).all()
            and view.live.find(prints).all()
            and core.words[GENERATION] == view.generation
            and view.live.damage is None
        ):
            core.require_place()
            return 0
        seen = None if keep or self._fast_generation != view.generation else view
        # Known keys go along: a rebuild that begins before the lock is held must get them too.
        return self._store._group.add(core, self._certain, prints, keep=keep, seen=seen)

    def _collect(self, batch: Batch, chunks: abc.Iterable[NDArray[np.uint64]]) -> int:
        """Takes keys into a batch, known ones too: a rebuild may have begun when it ends."""
        added = 0  # `Store.batch` has already checked that the store may be written
        for prints in chunks:
            view = self._current()
            added += batch.collect(self._core, view, prints, view.live.find(prints))
            with self._store._views:
                self._pause()  # from now on a lookup inside must also find the collected keys
        return added

    def _current(self) -> FilterView:
        """The view of this moment, for readers; in doubt if the catalog cannot be read."""
        try:
            return self._certain()
        except READING_ERRORS as error:
            view, state = self._view, FilterState(StateName.DAMAGED, str(error))
            return FilterView(NEVER, view.row, view.live, view.coming, state)

    def _certain(self) -> FilterView:
        """The view of this moment, for writers too; reloaded when the generation moved.

        Raises if the catalog cannot be read: keys added to the stages of an older view are lost,
        and rows written from it may replace newer rows of other processes.
        """
        core = self._store._core
        view = self._view
        is_current = core.words[GENERATION] == view.generation and core is self._core
        is_current = is_current and (core.loss is None or not view.state.is_sound)
        if is_current and (self._fast_generation == view.generation or view.is_lasting):
            return view
        view = load_view(core, self.name, self._number)
        self._use(core, view)
        return view

    def _use(self, core: Core, view: FilterView) -> None:
        """Makes lookups ask this view, on the fast path too if its "no" is certain."""
        with self._store._views:
            is_news = view.state != self._view.state and not view.state.is_sound
            self._core = core
            self._view = view
            self._resume()
        if is_news:  # outside the lock: a log handler may wait for other threads
            log.warning("filter %r answers maybe to everything: %s", self.name, view.state)

    def _point(self, core: Core, view: FilterView) -> None:
        """Gives single lookups and adds their vectors. Holds the views lock."""
        self._point_at(core.words, view.live.vectors, view.live.geometries)
        self._adds_durably = (
            view.row.durability == "commit"
            and view.coming is None
            and view.live.damage is None
            and not core.options.read_only
        )
        stage = view.live.newest if view.live.stages else None
        if (
            view.row.durability == "process"
            and view.coming is None
            and stage is not None
            and stage.segment is not None
            and stage.segment.is_writable
            and view.live.damage is None
        ):
            spec = stage.row.spec
            self._add_into(
                core.lock.keeper,
                core.words,
                stage.segment.shared,
                spec.geometry,
                stage.segment.words,
                stage.row.number,
                stage.row.bits_left(0),
                spec.keys_left(0),
                stage.segment.flag_shift,
            )

    def _take_fast_path(self, view: FilterView) -> None:
        """Switches to the fast path after a lookup that may have verified the last blocks."""
        if self._fast_generation == NEVER and view.live.is_verified:
            with self._store._views:
                self._resume()

    def _resume(self) -> None:
        """Lets single lookups take the fast path, if they may. Holds the views lock.

        The vectors are taken after the blocks were seen to be verified: those of damaged blocks
        are replaced while they are verified.
        """
        view = self._view
        self._fast_generation = NEVER
        may = view.state.is_sound and view.live.is_verified and self._store._has(self._core)
        may = may and self._core.loss is None
        if may and not self._store._batches.has_keys_of(self._number):
            self._point(self._core, view)
            self._fast_generation = view.generation

    def _pause(self) -> None:
        """Sends every single lookup through the slow path: after a close or fork, or in a batch."""
        self._fast_generation = NEVER

    def __repr__(self) -> str:
        return f"<Filter {self.name!r} in {self._store.path}>"


def _one_print(key: Key, seed: int) -> NDArray[np.uint64]:
    """The fingerprint of one key as a batch of one."""
    words = np.frombuffer(fingerprint(key, seed), dtype="<u8").reshape(1, 2)
    return words.astype(np.uint64, copy=False)
