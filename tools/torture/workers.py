"""The processes of a torture run: writers that are killed, a reader that is not, a verifier.

Each of them is a function that is called in a freshly forked process and opens the store itself. A
writer sends "run slot n" down the pipe of acknowledgements, one line per write call, when the keys
below n of that slot are acknowledged. The reader takes these lines, asks for the keys at once, and
enters them into the ledger. Violations of the promise go to a second pipe, one line each.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import bloomstore
from bloomstore import Scalable, crash
from bloomstore.errors import BloomStoreError, FilterNotFound
from bloomstore.layout.layouts import Layout
from bloomstore.store.write import bulk_load
from tools.torture.ledger import FIRST_EXTRA, MAIN, SLOTS, Ledger, filter_name, keys_of

SPEC = Scalable(target_error=0.01, initial_capacity=64)
SMALL = Scalable(target_error=0.01, initial_capacity=16)
LOCK_SECONDS = 30.0
EXTRAS = 6  # filters of single runs in the store at one time, about
SHARE = 400  # keys that one run adds to each main filter before it turns to its own
NEGATIVES = 20_000
CHUNK = 500  # keys of a rebuild per call: the lock is held for three growths, not for all
BULK = 200  # keys that are loaded in bulk, here


class Violation(Exception):
    """The promise was broken; the message says where."""


class Writer:
    """Adds in every way until it is killed."""

    def __init__(self, path: Path, ledger: Ledger, run: int, seed: int, mode: str, acks: int):
        self._path, self._ledger, self._run, self._acks = path, ledger, run, acks
        self._chance = random.Random(seed)
        self._durabilities = [name for name in MAIN if mode in (name, "both")]
        self._aim = ""
        bulk_load.LEAST_KEYS = BULK
        self._obey()
        self._store = bloomstore.open(path, lock_seconds=LOCK_SECONDS)

    def work(self) -> None:
        """Never returns."""
        operations = {
            self._add_single: 30,
            self._add_many: 25,
            self._add_batch: 15,
            self._add_bulk: 5,
            self._add_again: 5,
            self._make_extra: 4,
            self._drop_extra: 3,
            self._checkpoint: 2,
            self._rebuild: 2,
            self._reopen: 1,
        }
        names, weights = list(operations), list(operations.values())
        while True:
            self._obey()
            operation = self._aimed() or self._chance.choices(names, weights)[0]
            self._ledger.doing[self._run] = names.index(operation)
            operation()
            self._ledger.beat(self._run)
            self._ledger.orders[self._run, 2] += 1

    def _obey(self) -> None:
        point, time_left = (int(word) for word in self._ledger.orders[self._run, :2])
        if point:
            self._ledger.orders[self._run, 0] = 0
            self._aim = crash._wanted = crash.POINTS[point - 1]
            crash._left = time_left

    def _aimed(self) -> Callable[[], None] | None:
        """An operation that comes to the point where this process shall die."""
        kind = self._aim.partition(":")[0]
        if kind in ("new file", "generation", "seal"):
            return self._chance.choice([self._make_extra, self._add_many])
        if kind == "bulk load":
            return self._add_bulk
        if kind == "drop":
            return self._chance.choice([self._make_extra, self._drop_extra])
        if kind == "checkpoint":
            return self._chance.choice([self._add_single, self._checkpoint])
        if kind in ("add", "process add"):
            return self._chance.choice([self._add_many, self._checkpoint])
        return None

    def _slot(self) -> int:
        mains = [MAIN.index(name) for name in self._durabilities]
        mine = [slot for slot in range(FIRST_EXTRA, SLOTS) if self._has(self._run, slot)]
        used = int(self._ledger.intended[self._run, mains].max())
        if len(mains) == 2 and self._aim.startswith(("add", "process add")):
            return int(self._aim.startswith("process add"))
        if mine and (used > SHARE or self._chance.random() < 0.3):
            return self._chance.choice(mine)
        return self._chance.choice(mains)

    def _has(self, run: int, slot: int) -> bool:
        return bool(self._ledger.created[run, slot] and not self._ledger.dropping[run, slot])

    def _take(self, slot: int, count: int) -> list[int]:
        first = int(self._ledger.intended[self._run, slot])
        self._ledger.intended[self._run, slot] = first + count
        return [int(key) for key in keys_of(self._run, slot, first, first + count)]

    def _acknowledge(self, slot: int) -> None:
        os.write(
            self._acks, b"%d %d %d\n" % (self._run, slot, self._ledger.intended[self._run, slot])
        )

    def _handle(self, slot: int) -> bloomstore.Filter:
        return self._store[filter_name(self._run, slot)]

    def _add_single(self) -> None:
        slot = self._slot()
        handle = self._handle(slot)
        for key in (self._take(slot, 1)[0] for _ in range(self._chance.randint(1, 10))):
            handle.add(key)
            self._acknowledge(slot)
            if key not in handle:
                raise Violation(f"{handle.name}: {key} is not found by its own process")
            self._ledger.beat(self._run)

    def _add_many(self) -> None:
        slot = self._slot()
        handle = self._handle(slot)
        keys = self._take(slot, self._chance.choice([2, 10, 50, 120]))
        handle.add_many(keys if self._chance.random() < 0.5 else np.array(keys))
        self._acknowledge(slot)
        if not handle.may_contain_many(keys).all():
            raise Violation(f"{handle.name}: keys of add_many are not found by its own process")

    def _add_bulk(self) -> None:
        slot = self._slot()
        keys = self._take(slot, BULK + self._chance.randrange(100))
        self._handle(slot).add_many(np.array(keys))
        self._acknowledge(slot)

    def _add_batch(self) -> None:
        slots = {self._slot() for _ in range(3)}
        taken = {slot: self._take(slot, self._chance.choice([1, 5, 40])) for slot in slots}
        with self._store.batch():
            for slot, keys in taken.items():
                handle = self._handle(slot)
                handle.add(keys[0])
                handle.add_many(keys)
        for slot, keys in taken.items():
            self._acknowledge(slot)
            if not self._handle(slot).may_contain_many(keys).all():
                raise Violation(f"slot {slot}: keys of a batch are not found by its own process")

    def _add_again(self) -> None:
        """Known keys, of this run and of others: nothing may change."""
        slot = self._slot()
        for run in (self._run, self._chance.randrange(self._run + 1)):
            known = int(self._ledger.acked[run, slot])
            if known and (slot < FIRST_EXTRA or run == self._run):
                key = int(keys_of(run, slot, 0, known)[self._chance.randrange(known)])
                if self._handle(slot).add(key):
                    raise Violation(f"{self._handle(slot).name}: acknowledged key {key} was new")

    def _make_extra(self) -> None:
        free = [
            slot for slot in range(FIRST_EXTRA, SLOTS) if not self._ledger.created[self._run, slot]
        ]
        if not free or len(self._ledger.extras()) >= EXTRAS:
            return self._drop_extra()
        slot = free[0]
        durability = self._chance.choice(self._durabilities)
        layouts: tuple[Layout | None, ...] = (None, "blocked", "sliced", "plain")
        layout = self._chance.choice(layouts)
        spec = Scalable(target_error=0.01, initial_capacity=16, layout=layout)
        self._store.create(filter_name(self._run, slot), spec, durability=durability)
        self._ledger.created[self._run, slot] = 1
        keys = self._take(slot, 60)
        self._handle(slot).add_many(keys)
        self._acknowledge(slot)
        return None

    def _drop_extra(self) -> None:
        """One of this run, or of a run that is over."""
        old = [name for name in self._ledger.extras() if not self._is_of_another(name)]
        if not old:
            return
        name = self._chance.choice(old)
        _, run, slot = name.split()
        self._ledger.dropping[int(run), int(slot)] = 1
        with contextlib.suppress(FilterNotFound):  # another writer chose the same
            self._store.drop(name)

    def _is_of_another(self, name: str) -> bool:
        run = int(name.split()[1])
        return run != self._run and bool(self._ledger.alive[run])

    def _checkpoint(self) -> None:
        self._store.checkpoint()

    def _rebuild(self) -> None:
        mine = [slot for slot in range(FIRST_EXTRA, SLOTS) if self._has(self._run, slot)]
        if self._chance.random() < 0.1:
            name = str(self._chance.choice(self._durabilities))
        elif mine:
            name = filter_name(self._run, self._chance.choice(mine))
        else:
            return
        try:
            with self._store.rebuild(name) as new:
                source = self._ledger.intended_keys(name)
                for first in range(0, len(source), CHUNK):
                    new.add_many(source[first : first + CHUNK])
                    self._ledger.beat(self._run)
                if self._chance.random() < 0.8:
                    new.switch()
        except BloomStoreError as error:
            if "is over" not in str(error):  # another writer has begun a rebuild of its own
                raise

    def _reopen(self) -> None:
        self._store.close()
        self._store = bloomstore.open(self._path, lock_seconds=LOCK_SECONDS)


class Reader:
    """Asks for every key as soon as it was acknowledged."""

    def __init__(self, path: Path, ledger: Ledger, acks: int, violations: int, *, read_only: bool):
        self._ledger, self._acks, self._violations = ledger, acks, violations
        self._store = bloomstore.open(
            path, read_only=read_only, create=False, lock_seconds=LOCK_SECONDS
        )

    def work(self) -> None:
        """Returns after the line "stop"."""
        rest = b""
        while True:
            *lines, rest = (rest + os.read(self._acks, 65536)).split(b"\n")
            for line in lines:
                words = line.split()
                if words[0] == b"stop":
                    self._store.close()
                    return
                if words[0] == b"sync":
                    self._ask_again()
                    self._ledger.answered[0] = int(words[1])
                elif words[0] == b"sound":
                    self._ledger.answered[2] = self._is_sound()
                    self._ledger.answered[0] = int(words[1])
                else:
                    self._ask(*(int(word) for word in words))

    def _ask(self, run: int, slot: int, last: int) -> None:
        first = int(self._ledger.acked[run, slot])
        keys = keys_of(run, slot, first, last)
        self._find(run, slot, keys)
        self._ledger.acked[run, slot] = max(first, last)
        self._ledger.answered[1] += 1

    def _ask_again(self) -> None:
        """Everything of the latest runs."""
        latest = np.flatnonzero(self._ledger.acked.any(axis=1))[-12:]
        for run, slot in np.argwhere(self._ledger.acked[latest]):
            run = int(latest[run])
            self._find(
                run, int(slot), keys_of(run, int(slot), 0, int(self._ledger.acked[run, slot]))
            )

    def _find(self, run: int, slot: int, keys: np.ndarray) -> None:
        name = filter_name(run, slot)
        try:
            handle = self._store[name]
            lost = [int(key) for key in keys[-2:] if int(key) not in handle]
            if len(keys) > 2:
                lost += keys[~handle.may_contain_many(keys)].tolist()
        except FilterNotFound:
            lost = keys.tolist()
        if lost and not self._ledger.dropping[run, slot]:
            self._ledger.answered[3] += len(lost)
            say(self._violations, f"reader: {name}: {len(lost)} acknowledged keys lost: {lost[:3]}")

    def _is_sound(self) -> bool:
        return all(self._store[name].state.is_sound for name in self._store if name in MAIN)


def verify(path: Path, ledger: Ledger, violations: int) -> None:
    """A fresh process compares the store with everything that was ever acknowledged."""
    with bloomstore.open(path, create=False, lock_seconds=LOCK_SECONDS) as store:
        names = set(store)
        for name in [name for name in MAIN if name in names] + ledger.extras():
            if name not in names:
                say(violations, f"verifier: the filter {name!r} is gone")
                continue
            handle = store[name]
            keys = ledger.acked_keys(name)
            lost = keys[~handle.may_contain_many(keys)].tolist()
            lost += [int(key) for key in keys[:: max(1, len(keys) // 50)] if int(key) not in handle]
            if lost:
                ledger.answered[3] += len(lost)
                say(violations, f"verifier: {name}: {len(lost)} of {len(keys)} lost: {lost[:3]}")
            if not handle.state.is_sound:
                say(violations, f"verifier: {name}: {handle.state}")
            asked = NEGATIVES if name in MAIN else NEGATIVES // 10
            wrong = int(handle.may_contain_many(np.arange(-asked, 0)).sum())
            promised = asked * handle.stats().target_error
            # Five standard deviations: chance does not fail it, a lost count of the fill does.
            if wrong > promised + 5 * promised**0.5:
                say(violations, f"verifier: {name}: {wrong} of {asked} wrongly reported")
        report_problems(store, violations, "verifier")
    with bloomstore.open(path, read_only=True) as store:
        report_problems(store, violations, "read-only verifier")


def report_problems(store: bloomstore.Store, violations: int, who: str) -> None:
    """What `check` says is a violation: nothing but processes was hurt."""
    for problem in store.check():
        say(violations, f"{who}: check: {problem}")


def probe(path: Path, ledger: Ledger) -> None:
    """Measures what this machine needs for one small sync just now, whoever else is at work."""
    with path.open("wb", buffering=0) as file:
        while True:
            begin = time.monotonic_ns()
            file.write(b"x")
            os.fsync(file.fileno())
            ledger.answered[4] = max(ledger.answered[4], time.monotonic_ns() - begin)
            file.seek(0)
            time.sleep(0.05)


def die_with_parent() -> None:
    """Nothing that is forked here outlives the run."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def only_open(path: Path) -> None:
    """Opens and closes; killed at a step of recovery, if its crash point says so."""
    bloomstore.open(path, create=False, lock_seconds=LOCK_SECONDS).close()


def say(pipe: int, what: str) -> None:
    """One line by one write, so that nothing is cut in half."""
    stamp = f"{time.monotonic():.3f}"
    os.write(pipe, (stamp + " " + what.replace("\n", " | "))[-3000:].encode() + b"\n")
