"""Group commit: threads that wait for a durable add are committed together by the first of them.

A thread leaves its request, then waits for the writer lock. The thread that gets the lock takes all
requests that have gathered and adds them with one LMDB commit; the others find theirs done. So the
cost of a sync is shared by all threads that wait for it, and a lone thread pays nothing.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import threading

import numpy as np

from bloomstore import held
from bloomstore.errors import BloomStoreError, StoreFailed
from bloomstore.held import Holding
from bloomstore.kernels import MAX_PRINTS_PER_CALL, OneKey
from bloomstore.store.durable import recovery
from bloomstore.store.durable.holding import holding
from bloomstore.store.process.open_files import Core
from bloomstore.store.view import FilterView
from bloomstore.store.write import single_commit, writer
from bloomstore.store.write.batch import add_together, as_bytes
from bloomstore.store.write.plan import Prints


class Request(Holding):
    """Keys that one thread wants to add, and the outcome.

    It is among the requests of its group while its thread is in the block.
    """

    __slots__ = ("_group", "added", "error", "fresh", "prints", "view")

    def __init__(self, group: Group, view: abc.Callable[[], FilterView], prints: Prints) -> None:
        self._group = group
        self.view = view
        self.prints = prints
        self.fresh = 0
        self.added: int | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        self.announce()
        with self._group._gathering:
            self._group._requests.append(self)

    def give_back(self, *, is_done: bool) -> None:
        """Removes the request from its group."""
        with self._group._gathering, contextlib.suppress(ValueError):
            self._group._requests.remove(self)

    @property
    def is_done(self) -> bool:
        """Whether a thread has served it."""
        return self.added is not None or self.error is not None


class Group:
    """The requests of one process that wait for the writer lock."""

    def __init__(self) -> None:
        # Protects the list, held for a moment only; a signal handler may come in it.
        self._gathering = threading.RLock()
        self._requests: list[Request] = []

    def add(
        self,
        core: Core,
        view: abc.Callable[[], FilterView],
        prints: Prints,
        *,
        keep: bool,
        seen: FilterView | None = None,
        handle: OneKey | None = None,
    ) -> int:
        """Adds keys and returns how many were new; `view` is called under the writer lock.

        `seen` is the view that the caller has, if the add may take the ordinary road, and `handle`
        its handle, if that has looked for the only key in vain (single_commit.py).
        """
        if seen is not None and not self._requests:
            added = single_commit.add(core, [(seen, prints)], handle)
            if added is not None:
                return added
        mine = Request(self, view, prints)
        with mine, core.lock.threads():
            if not mine.is_done:
                with holding(core, keep=keep):
                    self._serve(core, mine)
        if mine.error is not None:
            raise mine.error
        if mine.added is None:
            raise StoreFailed(
                "the add was interrupted before its keys were durable; add them again"
            )
        return mine.added

    def _serve(self, core: Core, mine: Request) -> None:
        """Serves all requests; they stay listed, so that an interrupt of this thread loses none."""
        with self._gathering:
            requests = [request for request in self._requests if not request.is_done]
        keys = sum(len(request.prints) for request in requests)
        if len(requests) > 1 and keys <= MAX_PRINTS_PER_CALL:
            _add_all(core, requests)
        for request in requests:
            if not request.is_done:
                _add_one(core, request, is_mine=request is mine)


def _add_one(core: Core, request: Request, *, is_mine: bool) -> None:
    least = held.depth()
    try:
        request.added = max(request.fresh, writer.add(core, request.view(), request.prints))
    except Exception as error:
        held.surrender(least)
        core.lock.begin_tenure()  # the next add finishes work that was left half done
        if not (is_mine or isinstance(error, BloomStoreError)):
            raise  # perhaps of a signal handler of this thread: the other thread serves itself
        request.error = error  # raised again in the thread that asked


def _add_all(core: Core, requests: list[Request]) -> None:
    """One commit for all that have a journal; none is done when one of them cannot be added so."""
    wanted: dict[int, tuple[FilterView, list[Request]]] = {}
    least = held.depth()
    try:
        for request in requests:
            view = request.view()
            if view.row.durability == "commit":
                wanted.setdefault(view.row.number, (view, []))[1].append(request)
        for view, mine in wanted.values():
            for request in mine:
                request.fresh = _count_fresh(view, mine, request)
        add_together(
            core,
            [
                (view, np.concatenate([request.prints for request in mine]))
                for view, mine in wanted.values()
            ],
        )
    except (BloomStoreError, MemoryError):  # each is tried by itself and gets its own error
        held.surrender(least)
        core.lock.begin_tenure()
        recovery.finish(core)
        return
    for _, mine in wanted.values():
        for request in mine:
            request.added = request.fresh


def _count_fresh(view: FilterView, requests: list[Request], mine: Request) -> int:
    """Keys of this request that neither the filter nor an earlier request has."""
    unknown = mine.prints[~view.live.find(mine.prints)]
    earlier = {
        one for request in requests[: requests.index(mine)] for one in as_bytes(request.prints)
    }
    return len(set(as_bytes(unknown)) - earlier)
