"""Exceptions raised by a signal handler at random moments: no lock stays held and no key is lost.

An epoch is the life of one process with a new store. Its main thread is interrupted at random
during every kind of operation, while two other threads add keys, and keeps the last tracebacks as
a program does that logs them later. After each interrupt no lock may be held, the next add must
succeed, and every acknowledged key must be reported; now and then another process must get the
writer lock. At the end of the epoch another thread closes the store, and a fresh process compares
it with everything that was acknowledged.

The supervisor opens no store: it forks the processes that do. A process that says nothing for a
minute counts as hung.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import contextlib
import faulthandler
import itertools
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import bloomstore
from bloomstore import Durability, Dynamic, Filter, Store, held
from bloomstore.errors import StoreLocked
from bloomstore.keys import Key
from tools.torture.workers import die_with_parent

PER_EPOCH = 500
STUCK = 60.0
NAMES = ("one", "two")
SPEC = Dynamic(capacity=500, target_error=0.001)
# Seconds until an interrupt, at most.
DELAYS = (0.00003, 0.0001, 0.0005, 0.002, 0.01)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Hung(Exception):
    """A process says nothing."""


def torture(folder: Path, cases: int, seed: int, seconds: float) -> bool:
    """Runs the epochs and prints; True when the promise was kept."""
    counts: collections.Counter[str] = collections.Counter()
    broken: list[str] = []
    begin = time.monotonic()
    for epoch in itertools.count():
        done = counts["interrupts"]
        if done >= cases or time.monotonic() > begin + seconds or len(broken) > 20:
            break
        durability: Durability = "process" if epoch % 2 else "commit"
        path = folder / f"epoch {epoch}"
        found, complaints = _epoch(path, seed + epoch, durability, min(PER_EPOCH, cases - done))
        counts.update(found)
        for complaint in complaints:
            broken.append(f"seed {seed}, epoch {epoch}, {durability}: {complaint}")
            print("VIOLATION", broken[-1], flush=True)
        if not complaints:
            shutil.rmtree(path)
        elapsed = time.monotonic() - begin
        print(
            f"{elapsed:4.0f} s: {counts['interrupts']} of {cases} interrupts,"
            f" violations {len(broken)}",
            flush=True,
        )
    for name, count in sorted(counts.items()):
        print(f"{name:<38}{count:>12}")
    print(f"{'violations':<38}{len(broken):>12}")
    return not broken


def _epoch(
    path: Path, seed: int, durability: Durability, interrupts: int
) -> tuple[collections.Counter[str], list[str]]:
    """One life of a process, and a look at what it left."""
    counts: collections.Counter[str] = collections.Counter()
    complaints: list[str] = []
    acknowledged: dict[str, set[Key]] = {}

    def work(pipe: Connection) -> None:
        Victim(path, seed, durability, pipe).live(interrupts)

    try:
        for said, what in _hear(work):
            if said == "counts":
                counts.update(what)
            elif said == "acknowledged":
                acknowledged = what
            elif said == "complaint":
                complaints.append(what)
    except Hung as error:
        complaints.append(str(error))
    if not complaints:
        complaints += [what for _, what in _hear(lambda pipe: _verify(pipe, path, acknowledged))]
        counts["keys compared by a fresh process"] += sum(map(len, acknowledged.values()))
    return counts, complaints


def _hear(work: abc.Callable[[Connection], None]) -> abc.Iterator[tuple[str, Any]]:
    """What a forked process says until its end. Raises Hung."""
    pipe, theirs = multiprocessing.Pipe()
    process = os.fork()
    if not process:
        try:
            die_with_parent()
            work(theirs)
        except BaseException:  # noqa: BLE001  the supervisor is told
            theirs.send(("complaint", traceback.format_exc()))
        finally:
            os._exit(0)
    theirs.close()
    try:
        while pipe.poll(STUCK):
            try:
                said = pipe.recv()
            except EOFError:
                return
            if said[0] != "beat":
                yield said
        os.kill(process, signal.SIGUSR1)  # faulthandler shows where it stands
        time.sleep(1)
        raise Hung(f"process {process} hangs")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _verify(pipe: Connection, path: Path, acknowledged: dict[str, set[Key]]) -> None:
    with bloomstore.open(path, create=False) as store:
        for problem in store.check():
            pipe.send(("complaint", f"check: {problem}"))
        for name, keys in acknowledged.items():
            missing = int((~store[name].may_contain_many(list(keys))).sum())
            if missing:
                pipe.send(("complaint", f"{missing} of {len(keys)} keys of {name} are lost"))


class Victim:
    """The process that is interrupted."""

    def __init__(self, path: Path, seed: int, durability: Durability, pipe: Connection) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.pipe = pipe
        self.durability = durability
        self.keys = itertools.count()
        # Keys that were about to be added, by filter, and those that were acknowledged.
        self.intended: dict[str, list[Key]] = {name: [] for name in NAMES}
        self.acknowledged: dict[str, set[Key]] = {name: set() for name in NAMES}
        self.counts: collections.Counter[str] = collections.Counter()
        self.tracebacks: collections.deque[BaseException] = collections.deque(maxlen=20)
        self.is_over = False

    def live(self, interrupts: int) -> None:
        """Until it was interrupted so often, or something is wrong."""
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        logging.disable()
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            # Later it would take a lock of logging, which an interrupt leaves taken for ever.
            logging.getLogger("bloomstore").isEnabledFor(level)
        sys.unraisablehook = lambda _: self.counts.update({"interrupts that Python dropped": 1})
        signal.signal(signal.SIGALRM, self._interrupt)
        with contextlib.ExitStack() as stack:
            stack.callback(signal.setitimer, signal.ITIMER_REAL, 0)
            store = bloomstore.open(self.path, durability=self.durability, lock_seconds=20)
            for name in NAMES:
                store.create(name, SPEC)
            rival, theirs = multiprocessing.Pipe()
            if not os.fork():
                self._rival(theirs)
            theirs.close()
            threads = [
                threading.Thread(target=self._add_beside, args=(store, number), daemon=True)
                for number in range(2)
            ]
            for thread in threads:
                thread.start()
            while self.counts["interrupts"] < interrupts:
                self._one(store)
                self._look(store)
                self.pipe.send(("beat", None))
                if self.counts["interrupts"] % 25 == 0:
                    rival.send("add")
                    if not rival.poll(30) or rival.recv() != "added":
                        raise AssertionError("another process does not get the lock")
                    self.counts["adds of another process"] += 1
            self.is_over = True
            for thread in threads:
                _join(thread)
            rival.close()
            closing = threading.Thread(target=store.close, daemon=True)
            closing.start()
            _join(closing)
        self.pipe.send(("acknowledged", self.acknowledged))
        self.pipe.send(("counts", self.counts))

    def _interrupt(self, *_: object) -> None:
        raise Interrupted

    def _one(self, store: Store) -> None:
        """Repeats one operation until it is interrupted."""
        operation = self.chance.choice(self.OPERATIONS)
        delay = self.chance.choice(DELAYS) * self.chance.random() + 0.000005
        end = time.monotonic() + 0.2  # it may have been dropped
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            try:
                while time.monotonic() < end:
                    operation(self, store, self.chance.choice(NAMES))
                    self.counts["operations"] += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted as error:
            self.counts["interrupts"] += 1
            self.counts[f"interrupts, {operation.__name__.strip('_')}"] += 1
            self.tracebacks.append(error)

    def _look(self, store: Store) -> None:
        """Nothing is held, adds go on, keys are there."""
        me = threading.get_ident()
        assert held.depth() == 0, "something is on the list"
        assert not store._core.lock.is_mine, "the writer lock is held"
        assert me not in store._core.catalog.gate._inside, "the gate was not left"
        assert not store._batches.open, "a batch is open"
        for name in NAMES:
            handle = store[name]
            if handle.fences:
                handle.unfence(*handle.fences)
            self._add(handle, [next(self.keys)])
            if self.chance.random() < 0.2:
                keys = list(self.acknowledged[name])
                missing = int((~handle.may_contain_many(keys)).sum())
                assert not missing, f"{missing} of {len(keys)} keys of {name} are lost"
                assert handle.state.is_sound, f"{name} is {handle.state}"

    def _add(self, handle: Filter, keys: list[Key]) -> None:
        self.intended[handle.name] += keys
        try:
            if len(keys) == 1:
                handle.add(keys[0])
            else:
                handle.add_many(keys)
        except StoreLocked:
            faulthandler.dump_traceback()  # who has it?
            raise
        self.acknowledged[handle.name].update(keys)

    def _add_beside(self, store: Store, number: int) -> None:
        try:
            for key in itertools.count():
                if self.is_over:
                    return
                self._add(store[NAMES[key % 2]], [f"{number} {key}"])
                time.sleep(0.005)
        except BaseException:  # noqa: BLE001  the supervisor is told
            self.pipe.send(("complaint", f"beside: {traceback.format_exc()}"))

    def _rival(self, pipe: Connection) -> None:
        """Another process that adds when it is told to."""
        try:
            die_with_parent()
            with bloomstore.open(self.path, durability=self.durability, lock_seconds=20) as store:
                for key in itertools.count():
                    pipe.recv()
                    store[NAMES[key % 2]].add(("rival", key))
                    pipe.send("added")
        finally:
            os._exit(0)

    # Operations ----------------------------------------------------------------------

    def _add_one(self, store: Store, name: str) -> None:
        self._add(store[name], [next(self.keys)])

    def _add_many(self, store: Store, name: str) -> None:
        self._add(store[name], [next(self.keys) for _ in range(20)])

    def _batch(self, store: Store, name: str) -> None:
        key = next(self.keys)
        for each in NAMES:
            self.intended[each].append(key)
        with store.batch():
            for each in NAMES:
                store[each].add(key)
        for each in NAMES:
            self.acknowledged[each].add(key)

    def _ask(self, store: Store, name: str) -> None:
        handle = store[name]
        _ = 1 in handle
        handle.may_contain_many(range(1000))
        handle.stats()
        handle.estimate_count()

    def _note(self, store: Store, name: str) -> None:
        store.notes[name] = b"noted"
        store.notes.get(name)

    def _fence(self, store: Store, name: str) -> None:
        store[name].unfence(store[name].fence("why"))

    def _create(self, store: Store, name: str) -> None:
        made = store.ensure("temporary", SPEC)
        made.add(next(self.keys))
        store.drop("temporary")

    def _checkpoint(self, store: Store, name: str) -> None:
        store.checkpoint()

    def _check(self, store: Store, name: str) -> None:
        list(store.check())

    def _rebuild(self, store: Store, name: str) -> None:
        with store.rebuild(name) as coming:
            coming.add_many(self.intended[name].copy())
            coming.switch()

    def _fork(self, store: Store, name: str) -> None:
        key = next(self.keys)
        self.intended[name].append(("child", key))
        parent = os.getpid()
        try:
            child = os.fork()
        except SystemError:  # CPython loses the exception of a handler that runs inside of fork
            if os.getpid() != parent:
                os._exit(2)
            self.counts["interrupts that Python spoiled in fork"] += 1
            return
        if not child:
            status = 1
            try:
                store[name].add(("child", key))
                status = 0
            except Interrupted:  # it came before the fork and was copied
                status = 2
            finally:
                os._exit(status)
        status = _end_of(child)
        if status == 1:
            self.pipe.send(("complaint", "a forked child could not add"))
        elif status == 0:
            self.acknowledged[name].add(("child", key))

    def _open(self, store: Store, name: str) -> None:
        with bloomstore.open(self.path.with_name(f"{self.path.name} second")) as second:
            second.ensure("seen", SPEC).add(next(self.keys))

    OPERATIONS = (
        _add_one,
        _add_many,
        _batch,
        _ask,
        _note,
        _fence,
        _create,
        _checkpoint,
        _check,
        _rebuild,
        _fork,
        _open,
    )


def _join(thread: threading.Thread) -> None:
    """Waits for the end of a thread; one that hangs is shown."""
    thread.join(30)
    frame = sys._current_frames().get(thread.ident or 0)
    if thread.is_alive() and frame is not None:
        raise AssertionError("a thread hangs:\n" + "".join(traceback.format_stack(frame)))


def _end_of(child: int) -> int:
    """Waits for a child, interrupted or not; its status."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except Interrupted:
        with contextlib.suppress(ChildProcessError):  # it has ended, and nobody knows how
            os.waitpid(child, 0)
        raise
