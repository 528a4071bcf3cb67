"""Group commit: threads that wait for a durable add are committed together by the first of them.

A thread leaves its request, then waits for the writer lock. Whoever gets it takes all requests
that have gathered and adds them with one LMDB commit; the others find theirs done. So the cost of
a sync is shared by as many threads as wait for it, and a lone thread pays nothing.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import threading
from dataclasses import dataclass

import numpy as np

from bloomstore.errors import StoreFailed
from bloomstore.kernels import MAX_PRINTS_PER_CALL, OneKey
from bloomstore.store import ordinary, recovery, writer
from bloomstore.store.batch import add_together, as_bytes
from bloomstore.store.core import Core
from bloomstore.store.view import FilterView
from bloomstore.store.writer import Prints


@dataclass(slots=True, eq=False)
class Request:
    """Keys that one thread wants to add, and what became of them."""

    view: abc.Callable[[], FilterView]
    prints: Prints
    fresh: int = 0
    added: int | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether somebody has taken care of it."""
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

        `seen` is the view that the caller has, if a durable add is all that there is to do, and
        `handle` its handle, if it has looked for the only key in vain.
        """
        if seen is not None and not self._requests:
            added = ordinary.add(core, seen, prints, handle)
            if added is not None:
                return added
        mine = Request(view, prints)
        with self._gathering:
            self._requests.append(mine)
        try:
            with core.lock.threads():
                if not mine.is_done:
                    with writer.holding(core, keep=keep):
                        self._serve(core)
        finally:
            with self._gathering, contextlib.suppress(ValueError):
                self._requests.remove(mine)  # it is there still when the lock could not be had
        if mine.error is not None:
            raise mine.error
        if mine.added is None:
            raise StoreFailed("the add was interrupted before it was served")
        return mine.added

    def _serve(self, core: Core) -> None:
        with self._gathering:
            requests, self._requests = self._requests, []
        try:
            keys = sum(len(request.prints) for request in requests)
            if len(requests) > 1 and keys <= MAX_PRINTS_PER_CALL:
                _add_all(core, requests)
            for request in requests:
                if not request.is_done:
                    _add_one(core, request)
        finally:  # an interrupt belongs to this thread alone: the others serve themselves
            with self._gathering:
                self._requests[:0] = [request for request in requests if not request.is_done]


def _add_one(core: Core, request: Request) -> None:
    try:
        request.added = max(request.fresh, writer.add(core, request.view(), request.prints))
    except Exception as error:  # noqa: BLE001  raised again in the thread that asked
        core.lock.begin_tenure()  # what was left half done is finished by the next add
        request.error = error


def _add_all(core: Core, requests: list[Request]) -> None:
    """One commit for all that have a journal; none is done when one of them cannot be added so."""
    wanted: dict[int, tuple[FilterView, list[Request]]] = {}
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
    except Exception:  # noqa: BLE001  each request is tried by itself and gets its own error
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
