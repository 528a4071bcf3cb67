"""The store: a directory of filters that several processes use at once.

    with bloomstore.open("filters/") as store:
        seen = store.create("seen", Scalable(target_error=1e-3))
        seen.add("alice")

One Store object per path and process: a second `open` of the same path returns the same object,
and it closes with the last of them. Any number of processes may have a store open; one of them
writes at a time. Threads may share everything. A forked child reopens by itself at its first use.

Not here: the handle of one filter (filter.py), the order of writing (write/), the order of steps
that survive a crash (durable/).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import logging
import os
import threading
import time
import uuid
from types import TracebackType
from typing import Self

from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.reasons import Reason
from bloomstore.catalog.rows import Durability, FilterRow
from bloomstore.errors import (
    BatchError,
    BloomStoreError,
    DamagedRow,
    FilterExists,
    FilterNotFound,
    SpecError,
    StoreClosed,
    StoreFailed,
    StoreLocked,
    StoreReadOnly,
)
from bloomstore.families.contract import FilterSpec
from bloomstore.held import whole
from bloomstore.store.care import backup, repair
from bloomstore.store.care.check import Problem, check_store
from bloomstore.store.durable import checkpoint, stage_files
from bloomstore.store.durable.holding import writing
from bloomstore.store.durable.startup import open_core
from bloomstore.store.filter import Filter
from bloomstore.store.notes import Notes
from bloomstore.store.options import (
    StoreOptions,
    check_durability,
    check_name,
    check_reason,
    check_spec,
)
from bloomstore.store.process import open_stores
from bloomstore.store.process.folder import Folder
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.watch import End
from bloomstore.store.process.words import GENERATION
from bloomstore.store.view import load_view
from bloomstore.store.write import coming_chain
from bloomstore.store.write.batch import finish
from bloomstore.store.write.batch_blocks import Batches, Block
from bloomstore.store.write.group_commit import Group

log = logging.getLogger("bloomstore")


class Store:
    """An open store. Made by `bloomstore.open`."""

    def __init__(self, folder: Folder, options: StoreOptions) -> None:
        self.path = folder.path
        self.options = options
        self._users = 1  # how many `open` calls share this object
        # Protects which view each handle asks and whether it may ask fast.
        self._views = threading.RLock()
        self._batches = Batches()
        self._group = Group()
        self._filters: dict[str, Filter] = {}
        self._opened: Core | None = open_core(folder, options)
        self._closing: Core | None = None
        self._is_told = False  # whether the loss of the store was logged

    @property
    def _core(self) -> Core:
        """The open files, reopened in a forked child. Raises StoreClosed."""
        core = self._opened
        if core is None:
            raise StoreClosed(f"the store at {self.path} is closed")
        if core.process != os.getpid():
            core = self._reopen(core)
        return core

    @whole
    def create(
        self,
        name: str,
        spec: FilterSpec,
        *,
        durability: Durability | None = None,
        fence: str | Reason | None = None,
    ) -> Filter:
        """Makes a new, empty filter. Raises FilterExists.

        With `fence`, a reason, the filter is born fenced: no process sees it answer "no" before it
        was filled and the fence lowered (see Filter.fences).

        Without a fence, a new filter is in doubt, and answers "maybe" until it is rebuilt, as long
        as there are segments of filters that a rolled back catalog has forgotten: it may be one of
        those filters.
        """
        check_name(name)
        spec = check_spec(spec).resolved()
        durability = self.options.durability if durability is None else durability
        check_durability(durability)
        fences = {} if fence is None else {uuid.uuid4().hex: check_reason(fence)}
        first = spec.stage(0, ())
        assert first is not None
        with self._changing("create") as core:
            with core.catalog.write() as change:
                if change.filter_row(name) is not None:
                    raise FilterExists(name)
                number = change.take_number()
                doubt = repair.doubt_of_new(core, change) if fence is None else None
            row = FilterRow(
                name=name,
                number=number,
                spec=spec,
                durability=durability,
                created_at=time.time(),
                fences=fences,
            )

            def announce(change: CatalogChange) -> None:
                change.put_filter(row)

            stage_files.new_stage(core, row, 0, 0, first, announce, doubt=doubt)
        return self[name]

    @whole
    def ensure(
        self, name: str, spec: FilterSpec, *, durability: Durability | None = None
    ) -> Filter:
        """The filter of this name, made if it is missing. Raises SpecError if it is another.

        Capacities may differ once it was rebuilt: a rebuild makes room for the keys there are.
        """
        try:
            existing = self[name]
        except FilterNotFound:
            with contextlib.suppress(FilterExists):  # another process was faster
                return self.create(name, spec, durability=durability)
            existing = self[name]
        row = existing._current().row
        if not check_spec(spec).is_met_by(row.spec, is_rebuilt=row.live_chain > 0):
            raise SpecError(f"filter {name!r} exists as {row.spec}, asked for {spec}")
        if durability is not None and durability != existing.durability:
            raise SpecError(
                f"filter {name!r} exists with durability {existing.durability!r},"
                f" asked for {durability!r}"
            )
        return existing

    @whole
    def __getitem__(self, name: str) -> Filter:
        check_name(name)
        core = self._core
        handle = self._filters.get(name)
        if handle is not None:
            try:
                handle.state  # noqa: B018  reloads the view if the generation moved
            except FilterNotFound:
                self._forget(handle)
            else:
                return handle
        new_handle = Filter(self, load_view(core, name))
        with self._views:
            return self._filters.setdefault(name, new_handle)

    @whole
    def __contains__(self, name: object) -> bool:
        try:
            known = check_name(name)
        except SpecError:
            return False
        with self._core.catalog.read() as view:
            return view.has_filter(known)

    @whole
    def __iter__(self) -> abc.Iterator[str]:
        with self._core.catalog.read() as view:
            return iter(view.filter_names())

    @whole
    def __len__(self) -> int:
        with self._core.catalog.read() as view:
            return len(view.filter_names())

    @whole
    def drop(self, name: str) -> None:
        """Removes a filter and its files. Its handles raise FilterNotFound from then on."""
        check_name(name)
        with self._changing("drop") as core:
            with core.change() as change:
                try:
                    row = change.filter_row(name)
                    if row is None:
                        raise FilterNotFound(name)
                    for chain in {stage.chain for stage in change.stage_rows(row.number)}:
                        stage_files.bury_chain(change, core, row.number, chain)
                except DamagedRow:
                    # Its files stay without a row, and `check` names them.
                    if name not in change.filter_names():
                        raise
                change.delete_filter(name)
                change.raise_generation()
            stage_files.bury(core)

    def batch(self) -> Block:
        """One durable commit for every key added inside, in any filter of this store.

        A batch belongs to its `with` block: it takes keys that are added there and in functions
        called from there, not those of other threads or tasks. An exception discards all of them.
        More than 65 536 keys are committed in parts, each atomic.
        """
        self._require_writable()
        return self._batches.block(lambda batch: finish(self._core, batch))

    def apart(self) -> contextlib.AbstractContextManager[None]:
        """A block outside any batch: keys that are added inside are durable at once.

        For plugins, whose keys must not wait for the end of a batch of the application.
        """
        return self._batches.apart() if self._batches.open else contextlib.nullcontext()

    @contextlib.contextmanager
    def rebuild(
        self, name: str, spec: FilterSpec | None = None
    ) -> abc.Iterator[coming_chain.Rebuild]:
        """A new chain for this filter; without `switch` nothing changes."""
        check_name(name)
        coming = coming_chain.begin(self, name, None if spec is None else check_spec(spec))
        try:
            yield coming
        finally:
            if not coming.is_switched:
                coming.discard()

    @whole
    def checkpoint(self) -> None:
        """Writes all bits to their segments and empties the journal."""
        with self._changing("checkpoint") as core:
            checkpoint.every_filter(core)

    def check(self, only: str | None = None) -> abc.Iterator[Problem]:
        """Reads everything and yields every problem; `only` names one filter. Changes nothing."""
        problems = check_store(self._core, only)
        return iter(whole(lambda: next(problems, None)), None)

    @whole
    def backup(self, folder: str | os.PathLike[str]) -> None:
        """Writes a consistent copy of the store into a new folder while the store is in use."""
        self._require_writable()
        backup.backup_store(self._core, Folder(folder))

    @whole
    def repair(self) -> abc.Iterator[repair.Repair]:
        """Mends all it can; yields what was done and what only a rebuild can mend."""
        self._require_writable()
        return iter(list(repair.repair_store(self._core)))

    @property
    @whole
    def incarnation(self) -> str:
        """Differs between a store and every copy of it, by `backup` or by file copy."""
        with self._core.catalog.read() as view:
            return f"{view.identity().incarnation}/{self._core.catalog.file_number}"

    @property
    def generation(self) -> int:
        """Raised whenever filters come or go, change their state, or get another chain."""
        return int(self._core.words[GENERATION])

    @property
    def boot(self) -> str:
        """Names the present boot of the machine; it differs after every restart."""
        return self._core.boot

    @property
    def is_writing_here(self) -> bool:
        """Whether this thread is in the middle of a change: it cannot begin another one."""
        return self._core.lock.is_mine

    @property
    def notes(self) -> Notes:
        """A small durable mapping of names to bytes, for plugins."""
        return Notes(self)

    @whole
    def close(self) -> None:
        """Checkpoints the store, if it may write, and closes it. Closing twice is no error.

        An exception in the middle, such as Ctrl-C, is raised; another close does the rest.
        """
        with open_stores.lock:
            core = self._opened if self._closing is None else self._closing
            if core is None:
                return
            if self._users > 1:
                self._users -= 1
                return
            try:
                is_begun, self._closing = self._closing is not None, core
                if not (is_begun or self.options.read_only) and core.process == os.getpid():
                    self._checkpoint_at_close(core)
            finally:
                self._opened = None
                self._pause_handles()
                self._filters.clear()
                core.close()
                open_stores.forget(self)
                self._users, self._closing = 0, None

    @property
    def _is_closing(self) -> bool:
        """Whether a close was interrupted: the store cannot be used and must be closed again."""
        return self._closing is not None

    def _checkpoint_at_close(self, core: Core) -> None:
        """Writes a checkpoint, unless another process holds the lock: the last to close does it."""
        if core.doubt is not None or core.is_lost():
            return
        with core.catalog.read() as view:
            if not view.journal_rows() and next(view.dirty_filter_rows(), None) is None:
                return
        with contextlib.suppress(StoreLocked), writing(core):
            checkpoint.every_filter(core)

    def _has(self, core: Core) -> bool:
        """Whether these are still the open files of this store."""
        return self._opened is core

    def _require_writable(self) -> None:
        """Raises StoreClosed or StoreReadOnly."""
        if self._core.options.read_only:
            raise StoreReadOnly(f"{self.path} was opened read-only")

    @contextlib.contextmanager
    def _changing(self, what: str) -> abc.Iterator[Core]:
        """The writer lock, for operations that cannot be part of a batch."""
        self._require_writable()
        if self._batches.mine is not None:
            raise BatchError(f"{what} cannot be part of a batch")
        core = self._core
        with writing(core):
            yield core

    def _forget(self, handle: Filter) -> None:
        """Takes out the handle of a dropped filter, unless a new one has its name by now."""
        with self._views:
            if self._filters.get(handle.name) is handle:
                del self._filters[handle.name]

    def _pause_handles(self) -> None:
        with self._views:
            for handle in self._filters.values():
                handle._pause()

    def _look(self, end: End) -> None:
        """Makes lookups answer "maybe" if the store is lost; gives up when it is told to end."""
        core = self._opened
        if core is None or core.is_closed or not core.is_lost():
            return
        while not self._views.acquire(timeout=0.01):
            if end.is_set:
                return
        try:
            self._pause_handles()
        finally:
            self._views.release()
        if not self._is_told:
            self._is_told = True
            log.error("%s: every answer is maybe, %s", self.path, core.loss)

    def _before_fork(self) -> None:
        """Waits until no thread writes or reads the catalog."""
        if self._opened is not None:
            self._opened.lock.pause_threads()
            self._opened.catalog.pause()

    def _after_fork_in_parent(self) -> None:
        """Ends the pause of `_before_fork`."""
        if self._opened is not None:
            self._opened.catalog.resume()
            self._opened.lock.resume_threads()

    def _after_fork_in_child(self) -> None:
        """Closes the parent's files; handles notice by their generation."""
        self._views = threading.RLock()
        self._group = Group()
        self._batches.open.clear()
        self._pause_handles()
        if self._opened is not None:
            self._opened.abandon()

    @whole
    def _reopen(self, old: Core) -> Core:
        """In a forked child: leaves the parent's files alone and opens its own."""
        with self._views:
            if self._opened is not old:
                return self._core
            try:
                core = open_core(old.folder, old.options)
                if core.place != old.place:
                    core.end()
                    raise StoreFailed(f"{self.path} was replaced while it was open; open it again")
            except (BloomStoreError, OSError) as error:
                raise StoreFailed(f"cannot be opened again after a fork: {error}") from error
            try:
                self._opened = core
                core.end(is_done=True)
            except BaseException:
                self._opened = old
                core.close()
                raise
        open_stores.watch()
        return core

    def __enter__(self) -> Self:
        self._core  # noqa: B018  raises StoreClosed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.path}{'' if self._opened else ', closed'}>"
