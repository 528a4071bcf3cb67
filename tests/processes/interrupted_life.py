"""The program of test_interrupts.py: a process whose operations are interrupted at every point.

    python interrupted_life.py STORE OPERATION DURABILITY POINTS
    python interrupted_life.py STORE open | fork

Python looks at signals when a function begins, after a call of a C function, and when it jumps
back. A profile function is called at the first two of these points, and an exception that it raises
comes from where an interrupt would come. So each operation is interrupted at its first such point,
then at the next one, and so on to its end. Tracebacks are kept, as by a program that logs them
later.

It is a process of its own because an interrupt inside Python's own `logging` or `threading` leaves
their locks held for ever, and pytest's handler of log records is one of them.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import fcntl
import os
import sys
from pathlib import Path
from types import FrameType
from typing import cast

import bloomstore
from bloomstore import Durability, Dynamic, Store, held
from tests.support.soundness import assert_sound

SPEC = Dynamic(capacity=200, target_error=0.001)
Operation = abc.Callable[[Store, int], list[int]]


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interrupt:
    """Interrupts this thread at the point with this number; there may be fewer."""

    def __init__(self, point: int) -> None:
        self._point = point
        self.points = 0  # that were passed

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def has_come(self) -> bool:
        """Whether there were so many points."""
        return self.points >= self._point

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename != __file__:
            self.points += 1
            if self.points == self._point:
                raise Interrupted


def add(store: Store, key: int) -> list[int]:
    store["seen"].add(key)
    return [key]


def add_many(store: Store, key: int) -> list[int]:
    store["seen"].add_many(range(key, key + 30))
    return list(range(key, key + 30))


def batch(store: Store, key: int) -> list[int]:
    with store.batch():
        store["seen"].add(key)
        store["other"].add(key)
    return [key]


def ask(store: Store, key: int) -> list[int]:
    store._core.words[0] += 1  # the generation: the handle looks at the catalog
    _ = 1 in store["seen"]
    store["seen"].may_contain_many([1, 2])
    store["seen"].stats()
    return []


def note(store: Store, key: int) -> list[int]:
    store.notes["name"] = b"value"
    assert store.notes["name"] == b"value"
    return []


def fence(store: Store, key: int) -> list[int]:
    store["seen"].unfence(store["seen"].fence("why"))
    return []


def create(store: Store, key: int) -> list[int]:
    store.ensure("temporary", SPEC).add(1)
    store.drop("temporary")
    return []


def checkpoint(store: Store, key: int) -> list[int]:
    store["seen"].add(key)
    store.checkpoint()
    return [key]


def check(store: Store, key: int) -> list[int]:
    assert list(store.check()) == []
    return []


def rebuild(store: Store, key: int) -> list[int]:
    with store.rebuild("other") as coming:
        coming.add_many([1])
        coming.switch()
    return []


def assert_nothing_is_held(store: Store) -> None:
    """Not by this thread, and not by a frame that a traceback keeps."""
    core = store._core
    lock = core.lock
    assert held.depth() == 0
    assert not lock.is_mine
    assert lock._depth == 0
    assert core.catalog.gate._inside == {}
    assert store._group._requests == []
    assert store._batches.open == {}
    assert store._views.acquire(blocking=False)
    store._views.release()
    if not lock.keeper.is_free:  # then it is kept, and the watcher gives it back
        with lock.path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


OPERATIONS = {
    each.__name__: each
    for each in (add, add_many, batch, ask, note, fence, create, checkpoint, check, rebuild)
}


def interrupt_everywhere(
    path: Path, durability: Durability, operation: Operation, points: int
) -> int:
    """Interrupts the operation at so many of its points; returns how many it has."""
    tracebacks: abc.MutableSequence[BaseException] = collections.deque(maxlen=50)
    acknowledged = [1, 2]
    with bloomstore.open(path, durability=durability, lock_seconds=5) as store:
        seen, other = store.create("seen", SPEC), store.create("other", SPEC)
        for handle in (seen, other):
            handle.add_many(acknowledged)
            assert 1 in handle
        operation(store, 500)
        count = Interrupt(1 << 60)
        with count:
            operation(store, 600)
        for number in range(min(points, count.points)):
            point = 1 + number * count.points // min(points, count.points)
            key = 1000 + 100 * number
            try:
                with Interrupt(point):
                    acknowledged += operation(store, key)
            except Interrupted as error:
                tracebacks.append(error)
            assert_nothing_is_held(store)
            seen.add(key + 50)
            acknowledged.append(key + 50)
            if seen.fences:
                seen.unfence(*seen.fences)
        assert tracebacks
        assert seen.may_contain_many(acknowledged).all()
    tracebacks.clear()
    assert_sound(path)
    with bloomstore.open(path) as store:
        assert store["seen"].may_contain_many(acknowledged).all()
    return count.points


def interrupt_opening_and_closing(path: Path) -> None:
    """Opens and closes a store, interrupted at every 23rd point."""
    with bloomstore.open(path) as store:
        store.create("seen", SPEC).add(1)
    tracebacks: abc.MutableSequence[BaseException] = collections.deque(maxlen=50)
    point = 1
    while True:
        interrupt = Interrupt(point)
        opened = None
        try:
            with interrupt:
                opened = bloomstore.open(path, lock_seconds=5)
                opened.close()
        except Interrupted as error:
            tracebacks.append(error)
        assert held.depth() == 0
        if not interrupt.has_come:
            break
        with bloomstore.open(path, lock_seconds=5) as store:
            store["seen"].add(point)
            assert store["seen"].may_contain_many([1, point]).all()
            if opened is not None:
                opened.close()
            while store._users > 1:  # an `open` that was interrupted in its very end
                store.close()
        point += 23
    assert point > 100
    tracebacks.clear()
    assert_sound(path)


def interrupt_forks(path: Path) -> None:
    """Forks, interrupted at every third point."""
    with bloomstore.open(path, lock_seconds=5) as store:
        seen = store.create("seen", SPEC)
        point = 0
        while True:
            point += 3
            interrupt = Interrupt(point)
            with interrupt:
                child = os.fork()
            if not child:
                try:
                    is_well = seen.add(("child", point)) and 1 not in seen
                    assert_nothing_is_held(store)
                finally:
                    os._exit(0 if is_well else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert_nothing_is_held(store)
            assert seen.add(("parent", point))
            assert seen.may_contain_many([("parent", point), ("child", point)]).all()
            if not interrupt.has_come:
                break
        assert point > 20
    assert_sound(path)


def main(path: str, what: str, *rest: str) -> None:
    if what == "open":
        interrupt_opening_and_closing(Path(path))
    elif what == "fork":
        interrupt_forks(Path(path))
    else:
        durability, points = rest
        found = interrupt_everywhere(
            Path(path), cast("Durability", durability), OPERATIONS[what], int(points)
        )
        assert found > 10, found


if __name__ == "__main__":
    main(*sys.argv[1:])
