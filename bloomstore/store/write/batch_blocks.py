"""Which batch an add belongs to: the one whose block it is called from, or none.

A batch belongs to its block, the `with` statement that has opened it. It takes an add only if the
frame of that block is on the stack of the caller, in the thread and task that opened it. So a
generator that is suspended inside a block, or a coroutine that waits there, takes nothing from
the code around it: keys added there are durable at once, which is the safe side.

Invariants
  1. A batch is open for as long as its end is referred to: the `with` statement does so on its own
     stack. However a block is left (an error, a dropped generator, an interrupt in the first moment
     of its end, another thread or context), the batch leaves this list in that moment.
  2. The list refers to frames of open blocks only.

Not here: collecting keys, and the commit (batch.py).
"""

from __future__ import annotations

import collections.abc as abc
import functools
import inspect
import sys
import threading
import weakref
from itertools import repeat
from types import FrameType, TracebackType
from typing import Any, overload

from bloomstore.store.write.batch import Batch

_End = abc.Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class Batches:
    """The batches that are open on a store. Safe in several threads."""

    def __init__(self) -> None:
        # By a weak reference to the end of each, in the order of opening. Handles look at its
        # length: while it is not empty no add takes the short way past `mine`.
        self.open: dict[weakref.ref[Any], BlockScope] = {}

    @property
    def mine(self) -> Batch | None:
        """The batch whose block runs now."""
        place = self._innermost() if self.open else None
        return None if place is None else place.batch

    def _innermost(self) -> BlockScope | None:
        """The innermost block on the stack of this thread."""
        me = threading.get_ident()
        mine = [place for place in list(self.open.values()) if place.thread == me]
        if not mine:
            return None
        task = present_task()
        by_frame = {place.frame: place for place in mine if place.task == task}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame in by_frame:
                return by_frame[frame]
            frame = frame.f_back
        return None

    def block(self, finish: abc.Callable[[Batch], None]) -> Block:
        """A block with a batch, which `finish` makes durable; inside another it joins that."""
        return Block(self, finish)

    def apart(self) -> Block:
        """A block without a batch: keys added inside are durable at once."""
        return Block(self, None)

    def has_keys_of(self, number: int) -> bool:
        """Whether an open batch has collected keys for this filter."""
        places = list(self.open.values())
        return any(place.batch is not None and number in place.batch.names for place in places)


class BlockScope:
    """The frame, thread and task of an open block; without a batch if keys are added apart."""

    __slots__ = ("batch", "frame", "task", "thread")

    def __init__(self, batch: Batch | None, frame: FrameType | None) -> None:
        self.batch = batch
        self.frame = frame
        self.thread = threading.get_ident()
        self.task = present_task()


class _Exit:
    """`__exit__` of a Block, as an object of its own that only the `with` statement refers to.

    A method would not do: an interrupt at its first step leaves its frame, and with it the Block,
    in a traceback that the caller may keep, and the batch of a block that was left would stay open.
    """

    @overload
    def __get__(self, block: None, kind: type[Block]) -> abc.Callable[..., None]: ...
    @overload
    def __get__(self, block: Block, kind: type[Block]) -> _End: ...
    def __get__(self, block: Block | None, kind: type[Block]) -> abc.Callable[..., None]:
        if block is None:  # ExitStack asks the class, and holds the block itself
            return _end
        end = functools.partial(_end, block)
        block.end = weakref.ref(end)
        return end


class Block:
    """The block of `store.batch()`, for a `with` statement."""

    __slots__ = ("__weakref__", "_batches", "_finish", "_places", "end")

    def __init__(self, batches: Batches, finish: abc.Callable[[Batch], None] | None) -> None:
        self._batches = batches
        self._finish = finish
        self._places: list[BlockScope | None] = []
        self.end: abc.Callable[[], object] | None = None

    def __enter__(self) -> None:
        is_nested = self._batches.mine is not None
        place = None
        if is_nested == (self._finish is None):
            place = BlockScope(None if self._finish is None else Batch(), _frame_of_block())
            # The end is in no variable: an interrupt here leaves this frame in a traceback, and a
            # kept traceback would keep the batch open.
            end_of_batch = self._batches.open.__delitem__
            self._batches.open[weakref.ref((self.end and self.end()) or self, end_of_batch)] = place
        self._places.append(place)

    __exit__ = _Exit()


def _end(block: Block, kind: object = None, _: object = None, __: object = None) -> None:
    place = block._places.pop() if block._places else None
    if place is None:
        return
    place.frame = None
    # A caller that keeps the block, in a context manager say, does not keep its batch open.
    # Its weak reference is in no variable: a traceback would keep it, to be removed once more.
    listed = block._batches.open
    list(map(listed.pop, [ref for ref, of in list(listed.items()) if of is place], repeat(None)))
    if kind is None and place.batch is not None and block._finish is not None:
        block._finish(place.batch)


def _frame_of_block() -> FrameType | None:
    """The frame with the `with` statement, past those of context managers made of this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (_is_contextlib(frame) or _enters(frame)):
        frame = frame.f_back
    return frame


def _enters(frame: FrameType) -> bool:
    is_driven = frame.f_code.co_flags & _GENERATOR and _is_contextlib(frame.f_back)
    return bool(is_driven) or frame.f_code.co_name in ("__enter__", "__aenter__")


def _is_contextlib(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") == "contextlib"


def present_task() -> object:
    """The event loop and the task that run in this thread now, if any does."""
    # A program with a loop has imported asyncio. Importing it here would take long, and an
    # interrupt in the middle would leave a module that nothing in the process can use.
    asyncio = sys.modules.get("asyncio")
    running: abc.Callable[[], Any] | None = getattr(asyncio, "_get_running_loop", None)
    loop = None if running is None else running()
    return None if asyncio is None or loop is None else (loop, asyncio.current_task(loop))
