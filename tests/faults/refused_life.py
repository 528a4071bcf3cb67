"""A short life of a store on a disk that refuses calls, and a list of everything that went wrong.

This is the program of the processes that test_full_disk.py starts:

    python -m tests.faults.refused_life TASK FOLDER ...

Each task prints JSON lines: the errors it met (`errors`) and the faults it found (`wrong`).
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import bloomstore
from bloomstore import Durability, Fixed, Scalable
from bloomstore.errors import BloomStoreError, StoreFailed
from bloomstore.families.contract import FilterSpec
from tests.powerloss.device import Fault, Faults
from tests.support.checkout import environment

SPECS: dict[str, tuple[FilterSpec, Durability]] = {
    "growing": (Scalable(target_error=0.01, initial_capacity=32), "commit"),
    "process": (Scalable(target_error=0.01, initial_capacity=32), "process"),
    "fixed": (Fixed(capacity=20_000, target_error=0.01), "commit"),
}
SYNC_FAILED = "a sync failed"
SINGLES = 10  # so many keys are asked for one by one, all of them in a batch
READERS = 150  # LMDB's lock file has 64 of them on its first page


class Life:
    """A short life of a store on a disk that refuses, and what was wrong about it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.wrong: list[str] = []
        self.errors: list[str] = []
        self.promised: dict[str, set[str]] = {name: set() for name in SPECS}

    @contextlib.contextmanager
    def step(self, what: str) -> abc.Iterator[None]:
        """Something that may fail, if it fails well."""
        try:
            yield
        except BloomStoreError as error:
            self.errors.append(f"{what}: {error}")
            if not isinstance(error, StoreFailed):
                self.wrong.append(f"{what}: {type(error).__name__}: {error}")
            elif str(self.path) not in str(error) and "cannot take keys" not in str(error):
                self.wrong.append(f"{what}: names no file: {error}")
        except Exception as error:  # noqa: BLE001  what is not ours is not clear
            self.wrong.append(f"{what}: {type(error).__name__}: {error}")

    def live(self) -> None:
        """Adds in every way, grows, checkpoints, rebuilds, drops; some of it fails."""
        with self.step("open"), bloomstore.open(self.path) as store:
            for round_number in range(3):
                for name, (spec, durability) in SPECS.items():
                    with self.step(f"ensure {name}"):
                        store.ensure(name, spec, durability=durability)
                    self.add(store, name, [f"{round_number} single"])
                    self.add(store, name, [f"{round_number} many {part}" for part in range(25)])
                self.add_batch(store, [f"{round_number} batch {part}" for part in range(5)])
                with self.step("checkpoint"):
                    store.checkpoint()
                self.find(store, f"after round {round_number}")
            self.rebuild(store)
            self.promised["fixed"].clear()  # a drop that fails may have happened all the same
            with self.step("drop"):
                if "fixed" in store:
                    store.drop("fixed")
            self.find(store, "before close")

    def add(self, store: bloomstore.Store, name: str, keys: list[str]) -> None:
        """Adds keys to one filter."""
        with self.step(f"add to {name}"):
            if name in store:
                store[name].add_many(keys)
                self.promised[name].update(keys)

    def add_batch(self, store: bloomstore.Store, keys: list[str]) -> None:
        """Adds keys to all filters in one batch."""
        with self.step("batch"):
            names = list(store)
            with store.batch():
                for name in names:
                    store[name].add_many(keys)
            for name in names:
                self.promised[name].update(keys)

    def rebuild(self, store: bloomstore.Store) -> None:
        """Replaces a filter by another with the same keys."""
        with self.step("rebuild"):
            if "growing" in store:
                with store.rebuild("growing") as new:
                    new.add_many(sorted(self.promised["growing"]))
                    new.switch()

    def find(self, store: bloomstore.Store, when: str) -> None:
        """No promised key is ever "no"."""
        for name, keys in self.promised.items():
            try:
                if not keys:
                    continue
                asked, users = sorted(keys), store[name]
                lost = [key for key in asked[:: len(asked) // SINGLES + 1] if key not in users]
                if lost or not users.may_contain_many(asked).all():
                    self.wrong.append(f"{when}: {name} lost {len(lost)} keys, {lost[:3]}")
            except StoreFailed:
                continue  # no answer is not "no"
            except Exception as error:  # noqa: BLE001
                self.wrong.append(f"{when}: {name}: {type(error).__name__}: {error}")

    def go_on(self, store: bloomstore.Store, label: str) -> None:
        """The disk takes writes again: so does the store."""
        try:
            for name in list(store):
                # A fixed filter whose sync failed takes no keys until it is repaired.
                if store[name].state.is_sound or name != "fixed":
                    store[name].add_many([f"{label} {part}" for part in range(40)])
                    self.promised[name].update(f"{label} {part}" for part in range(40))
        except BloomStoreError as error:
            self.wrong.append(f"{label}: {type(error).__name__}: {error}")
        self.find(store, label)

    def check(self, store: bloomstore.Store, when: str) -> None:
        """Nothing is wrong but stages whose sync failed."""
        in_doubt = {name for name in store if SYNC_FAILED in str(store[name].state)}
        self.wrong += [
            f"{when}: {problem}" for problem in store.check() if problem.filter_name not in in_doubt
        ]

    def afterwards(self) -> None:
        """A new handle, as of another process: everything is there, and goes on."""
        try:
            with bloomstore.open(self.path) as store:
                self.find(store, "reopened")
                self.check(store, "reopened")
                self.go_on(store, "reopened")
                self.check(store, "after going on")
                list(store.repair())
                self.find(store, "repaired")
            with bloomstore.open(self.path, read_only=True) as store:
                self.find(store, "read again")
                self.check(store, "read again")
        except BloomStoreError as error:
            self.wrong.append(f"afterwards: {type(error).__name__}: {error}")


def every_call(
    folder: Path, call: str, error: str, part: str, from_then_on: str, which: str
) -> None:
    """One life for every n, or some: the n-th such call fails, or all from the n-th on."""
    faults = Faults()
    n = 0
    while n < 400:
        n += max(1, n // 2) if which == "some" else 1
        life = Life(folder / f"life {n}")
        life.path.parent.mkdir(exist_ok=True)
        faults.set(Fault(call, n, int(error), part, from_then_on == "on"))
        store = None
        with life.step("open"):
            store = bloomstore.open(life.path)  # stays open: the same handle goes on afterwards
        life.live()
        fired = faults.fired
        faults.set()
        if store is not None:
            life.go_on(store, "the same process")
            with life.step("close"):
                store.close()
        life.afterwards()
        if life.wrong:
            say({"n": n, "wrong": life.wrong, "errors": life.errors})
        shutil.rmtree(life.path, ignore_errors=True)
        if not fired:
            say({"tried": n})
            return
    say({"tried": n, "wrong": ["the faults never ended"]})


def given_up(folder: Path) -> None:
    """LMDB gives an environment up whose meta page could not be written; the store goes on."""
    life, faults = Life(folder / "store"), Faults()
    store = bloomstore.open(life.path)
    for name, (spec, durability) in SPECS.items():
        store.ensure(name, spec, durability=durability)
        life.add(store, name, ["first"])
    for turn in range(5):
        faults.set(Fault("commit", 1, errno.EIO, "data.mdb"))
        with life.step("add"):
            store["fixed"].add(f"refused {turn}")
        if not faults.fired:
            life.wrong.append("nothing was refused")
        faults.set()
        if turn % 2:
            life.go_on(store, f"turn {turn}")
        with bloomstore.open(life.path) as again:
            again.checkpoint()
            life.find(again, f"opened again in turn {turn}")
    faults.set(Fault("commit", 5, errno.EIO, "data.mdb"))
    threads = [threading.Thread(target=work_on, args=(life, store, part)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faults.set()
    life.go_on(store, "after the threads")
    store.close()
    life.afterwards()
    say({"errors": life.errors, "wrong": life.wrong})


def work_on(life: Life, store: bloomstore.Store, part: int) -> None:
    """Adds and asks, as one of several threads."""
    for number in range(20):
        life.add(store, "growing", [f"thread {part} key {number}"])
        with life.step("note"):
            store.notes[f"note {part}"] = b"text"


def limited(folder: Path, limit: str) -> None:
    """No file may grow beyond the limit; then the limit is lifted."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    life = Life(folder / "store")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with bloomstore.open(life.path) as store:
        for name, (spec, durability) in SPECS.items():
            store.ensure(name, spec, durability=durability)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
        until_refused(life, store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        life.go_on(store, "the same process")
    life.afterwards()
    say({"errors": life.errors, "wrong": life.wrong})


def full(folder: Path) -> None:
    """The file system is filled to the last byte, at a moment when the store wants to grow."""
    life = Life(folder / "store")
    ballast = folder / "ballast"
    warnings.simplefilter("ignore", UserWarning)  # tmpfs
    with bloomstore.open(life.path) as store:
        for name, (spec, durability) in SPECS.items():
            store.ensure(name, spec, durability=durability)
            life.add(store, name, ["first"])
        fill(ballast)
        until_refused(life, store)
        say({"others": another("ask", life)})
        ballast.unlink()
        life.go_on(store, "the same process")
        fill(ballast)
        until_refused(life, store)
        with life.step("close"):
            store.close()
    say({"others": another("ask", life)})
    say({"others": run("crowd", life.path)})
    # LMDB's lock file is gone after a power cut or in a copy; opening makes it again.
    (life.path / "catalog" / "lock.mdb").unlink()
    fill(ballast)
    say({"others": another("ask", life)})
    ballast.unlink()
    life.afterwards()
    say({"errors": life.errors, "wrong": life.wrong})


def until_refused(life: Life, store: bloomstore.Store) -> None:
    """Adds until everything that needs space has been refused several times."""
    for number in range(400):
        for name in SPECS:
            life.add(
                store, name, [f"until {len(life.errors)} {number} {part}" for part in range(9)]
            )
        if number % 50 == 49:
            with life.step("checkpoint"):
                store.checkpoint()
            life.find(store, f"refused {number}")
        if len(life.errors) > 30:
            return


def fill(path: Path) -> None:
    """Takes all space there is."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12, 1 << 9, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
        os.fsync(file.fileno())


def ask(folder: Path, promised: str) -> None:
    """Another process asks for the promised keys while the disk is full."""
    warnings.simplefilter("ignore", UserWarning)
    life = Life(folder)
    life.promised = {name: set(keys) for name, keys in json.loads(promised).items()}
    for read_only in (True, False):
        try:
            with bloomstore.open(life.path, read_only=read_only) as store:
                life.find(store, f"read only: {read_only}")
        except StoreFailed as error:
            life.errors.append(str(error))
    say({"errors": life.errors, "wrong": life.wrong})


def crowd(folder: Path) -> None:
    """Many threads read the catalog at once, each with a place of its own in LMDB's lock file."""
    warnings.simplefilter("ignore", UserWarning)
    together = threading.Barrier(READERS)
    read: list[int] = []

    def look(store: bloomstore.Store) -> None:
        with store._core.catalog.read() as view:
            together.wait()
            read.append(len(view.filter_names()))

    with bloomstore.open(folder, read_only=True) as store:
        threads = [threading.Thread(target=look, args=(store,)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    say({"wrong": [] if read == [len(SPECS)] * READERS else [f"read {len(read)} times"]})


def another(task: str, life: Life) -> list[dict[str, object]]:
    """What another process says."""
    promised = json.dumps({name: sorted(keys) for name, keys in life.promised.items()})
    return run(task, life.path, promised)


def poisoned(path: Path) -> None:
    """A checkpoint whose msync fails; the process ends as if nothing were wrong."""
    with bloomstore.open(path) as store:
        store["growing"].add_many(["late 1", "late 2"])
        store["process"].add_many(["late 1", "late 2"])
        Faults().set(Fault("msync", 1, errno.EIO, ".seg", from_then_on=True))
        try:
            store.checkpoint()
        except StoreFailed as error:
            say({"error": str(error)})
        Faults().set()
        with contextlib.suppress(StoreFailed):
            store.checkpoint()
        say({"states": {name: str(store[name].state) for name in store}})


def say(line: dict[str, object]) -> None:
    """One line for whoever started this process."""
    print(json.dumps(line), flush=True)


def run(
    task: str, folder: Path, *arguments: str, variables: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Runs a task in a process of its own; returns what it says. It must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.refused_life", task, folder, *arguments],
        env=environment(**(variables or {})),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{task} ended with {done.returncode}\n{done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


TASKS = {
    task.__name__: task for task in (every_call, given_up, limited, full, ask, crowd, poisoned)
}

if __name__ == "__main__":
    task, where, *rest = sys.argv[1:]
    TASKS[task](Path(where), *rest)
