"""Writers of one store are killed, round by round: no key that was acknowledged may be lost.

In each round some writers add to one store, and one or all of them are killed by SIGKILL, at a
random time or at a named crash point. The survivors must go on within one second, and a reader
that is not killed asks for every acknowledged key. Now and then every process is killed, also
during recovery, and a fresh process compares the store with everything that was ever acknowledged.

This process never opens a store: it forks the processes that do (workers.py), and everything it
waits for has a time limit.
"""

from __future__ import annotations

import argparse
import collections.abc as abc
import os
import random
import signal
import time
import traceback
from pathlib import Path

import bloomstore
from bloomstore import crash
from tools.torture.ledger import FIRST_EXTRA, MAIN, Ledger
from tools.torture.workers import (
    SPEC,
    Reader,
    Writer,
    die_with_parent,
    only_open,
    probe,
    say,
    verify,
)

# Seconds until a survivor must have finished an operation, on a machine that is not busy; the time
# of as many syncs as four writers may have before it is added.
PAUSE_LIMIT = 1.0
SYNCS = 20
STUCK = 60.0  # seconds after which a process that says nothing is a failure
OTHER_STEPS = {"commit": "process add: ", "process": "add: ", "both": "no other"}
RECOVERY = [number for number, point in enumerate(crash.POINTS, 1) if point.startswith("recovery")]


class Torture:
    """One store, tortured round by round."""

    def __init__(self, path: Path, args: argparse.Namespace) -> None:
        self.path = path
        self.args = args
        self.chance = random.Random(args.seed)
        self.ledger = Ledger(args.rounds * args.writers * 2 + 100)
        self.runs = 0
        self.rounds = 0
        self.writers: dict[int, int] = {}  # process id to run
        self.reader: int | None = None
        self.probe: int | None = None
        self.acks, self.acks_in = os.pipe()
        self.complaints, self.complaints_in = os.pipe()
        os.set_blocking(self.complaints, False)
        self.questions = 0
        self.violations: list[str] = []
        self.kills = {"by time": 0, "at a crash point": 0, "reader": 0, "during recovery": 0}
        self.pauses: list[float] = []
        self.longest_sync = 0.0
        self.checks = 0
        # Steps that a running writer of this durability comes to.
        others = ("create store", "recovery", OTHER_STEPS[args.durability])
        self.aimed = [
            number for number, point in enumerate(crash.POINTS, 1) if not point.startswith(others)
        ]

    def run(self) -> None:
        """All rounds, then a last look."""
        self._call(self._make_filters)
        self._start_reader()
        self.probe = self._fork(lambda: probe(self.path.with_name("probe"), self.ledger))
        begin = last = time.monotonic()
        while self.rounds < self.args.rounds and not self.violations:
            if time.monotonic() > begin + self.args.seconds:
                print(f"time is up after {self.rounds} rounds")
                break
            self._round()
            self.rounds += 1
            if time.monotonic() > last + 5:
                last = time.monotonic()
                print(self._progress(last - begin), flush=True)
        self._kill(list(self.writers))
        self._sync()
        self._stop_reader(kill=False)
        self._verify()

    def _make_filters(self) -> None:
        with bloomstore.open(self.path) as store:
            for name in MAIN:
                if self.args.durability in (name, "both"):
                    store.create(name, SPEC, durability=name)

    def _round(self) -> None:
        wanted = self.chance.randint(1, self.args.writers)
        while len(self.writers) < wanted:
            self._start_writer()
        begin = time.monotonic_ns()
        self._await(lambda: self._all_beat(begin), "a writer does nothing")
        self._expect_sound_reader()
        time.sleep(self.chance.random() * 0.03)
        alive = list(self.writers)
        everyone = self.chance.random() < 0.2
        victims = (
            alive if everyone else self.chance.sample(alive, self.chance.randint(1, len(alive)))
        )
        self._kill_somehow(victims)
        if self.writers:
            self._time_survivors()
        self._sync()
        self._look_after_writers()
        if not self.writers and self.chance.random() < 0.3:
            self._calm()

    def _calm(self) -> None:
        """Nobody has the store open: what comes now is recovery, also killed recovery."""
        if self.chance.random() < 0.7:
            self._stop_reader(kill=self.chance.random() < 0.5)
        if self.reader is None and self.chance.random() < 0.6:
            for _ in range(self.chance.randint(1, 3)):
                crash._wanted = crash.POINTS[self.chance.choice(RECOVERY) - 1]
                crash._left = 1
                child = self._fork(lambda: only_open(self.path))
                crash._wanted = ""
                if self._wait(child) == -signal.SIGKILL:
                    self.kills["during recovery"] += 1
        if self.reader is None and self.chance.random() < 0.3:
            self._start_reader()
        self._verify()
        if self.reader is None:
            self._start_reader()

    def _start_writer(self) -> None:
        run, seed = self.runs, self.chance.randrange(1 << 30)
        self.runs += 1
        self.ledger.alive[run] = 1
        mode = self.args.durability

        def work() -> None:
            Writer(self.path, self.ledger, run, seed, mode, self.acks_in).work()

        self.writers[self._fork(work)] = run

    def _start_reader(self) -> None:
        read_only = self.chance.random() < 0.5

        def work() -> None:
            Reader(
                self.path, self.ledger, self.acks, self.complaints_in, read_only=read_only
            ).work()

        self.reader = self._fork(work)
        self._sync()

    def _stop_reader(self, *, kill: bool) -> None:
        if self.reader is None:
            return
        if kill:
            os.kill(self.reader, signal.SIGKILL)
            self.kills["reader"] += 1
        else:
            os.write(self.acks_in, b"stop\n")
        status = self._wait(self.reader)
        if status != (-signal.SIGKILL if kill else 0):
            self._complain(f"the reader ended with status {status}")
        self.reader = None

    def _verify(self) -> None:
        self.checks += 1
        self._call(lambda: verify(self.path, self.ledger, self.complaints_in))

    def _kill_somehow(self, victims: list[int]) -> None:
        """Each at a crash point, if it comes by there soon, or at this moment."""
        aimed = [process for process in victims if self.chance.random() < 0.5]
        for process in aimed:
            run = self.writers[process]
            self.ledger.orders[run, 1] = self.chance.choice([1, 1, 1, 2, 3])
            self.ledger.orders[run, 2] = 0
            self.ledger.orders[run, 0] = self.chance.choice(self.aimed)
        limit = time.monotonic() + 1.0
        dead: dict[int, int] = {}
        while self._may_still_die(aimed) and time.monotonic() < limit:
            for process in aimed:
                if process not in dead:
                    done, status = os.waitpid(process, os.WNOHANG)
                    if done:
                        dead[process] = os.waitstatus_to_exitcode(status)
                        self._bury(process, dead[process])
                        self.kills["at a crash point"] += 1
            time.sleep(0.0005)
        rest = [process for process in victims if process not in dead]
        self.kills["by time"] += len(rest)
        self._kill(rest)
        self.killed_at = time.monotonic_ns()

    def _may_still_die(self, aimed: list[int]) -> bool:
        """Whether one of them has not yet had four operations to come to its crash point."""
        runs = [self.writers[process] for process in aimed if process in self.writers]
        return any(self.ledger.orders[run, 2] < 4 for run in runs)

    def _kill(self, victims: list[int]) -> None:
        for process in victims:
            os.kill(process, signal.SIGKILL)
        for process in victims:
            self._bury(process, self._wait(process))

    def _bury(self, process: int, status: int) -> None:
        self.ledger.alive[self.writers.pop(process)] = 0
        if status != -signal.SIGKILL:
            self._complain(f"a writer ended with status {status}")

    def _time_survivors(self) -> None:
        """Everybody who was not killed must finish an operation soon."""
        killed_at = self.killed_at
        self.ledger.answered[4] = 0
        doing = {run: int(self.ledger.doing[run]) for run in self.writers.values()}
        self._await(lambda: self._all_beat(killed_at), "a survivor does not go on")
        for run in self.writers.values():
            pause = (int(self.ledger.beats[run]) - killed_at) / 1e9
            self.pauses.append(pause)
            sync = int(self.ledger.answered[4]) / 1e9
            self.longest_sync = max(self.longest_sync, sync)
            if pause > PAUSE_LIMIT + SYNCS * sync:
                what = f"a survivor needed {pause:.2f} s to go on, a sync {sync:.3f} s"
                self._complain(f"{what}; operations under way: {doing}")

    def _all_beat(self, since: int) -> bool:
        return all(self.ledger.beats[run] > since for run in self.writers.values())

    def _look_after_writers(self) -> None:
        """A writer that was not killed must be alive."""
        for process in list(self.writers):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                self._bury(process, os.waitstatus_to_exitcode(status))
        self._listen()

    def _expect_sound_reader(self) -> None:
        """A read-only reader that waited for recovery must have noticed that it is over."""
        limit = time.monotonic() + 2
        while not self._ask_reader(b"sound", 2):
            if time.monotonic() > limit:
                self._complain("the reader still answers maybe although writers go on")
                return

    def _sync(self) -> None:
        """Returns when the reader has asked for everything that was acknowledged so far."""
        self._ask_reader(b"sync", 2)

    def _ask_reader(self, question: bytes, word: int) -> bool:
        self.questions += 1
        number = self.questions
        os.write(self.acks_in, question + b" %d\n" % number)
        self._await(lambda: bool(self.ledger.answered[0] == number), "the reader does not answer")
        return bool(self.ledger.answered[word])

    def _await(self, is_done: abc.Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + STUCK
        while not is_done():
            self._listen()
            if self.violations or time.monotonic() > limit:
                self._complain(f"{what} for {STUCK:.0f} s" if not self.violations else what)
                raise Broken
            time.sleep(0.0003)
        self._listen()

    def _listen(self) -> None:
        try:
            lines = os.read(self.complaints, 1 << 20).decode(errors="replace").splitlines()
        except BlockingIOError:
            return
        self.violations += lines

    def _complain(self, what: str) -> None:
        self._listen()
        self.violations.append(f"{time.monotonic():.3f} round {self.rounds}: {what}")

    def _fork(self, work: abc.Callable[[], object]) -> int:
        """A process that does this and ends; its errors are violations."""
        process = os.fork()
        if process:
            return process
        status = 1
        try:
            die_with_parent()
            work()
            status = 0
        except BaseException:  # noqa: BLE001  counted as a violation
            say(self.complaints_in, traceback.format_exc())
        finally:
            os._exit(status)

    def _call(self, work: abc.Callable[[], object]) -> None:
        status = self._wait(self._fork(work))
        if status:
            self._complain(f"a process ended with status {status}")

    def _wait(self, process: int) -> int:
        limit = time.monotonic() + STUCK
        while time.monotonic() < limit:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                self._listen()
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.0003)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self._complain(f"process {process} does not end")
        return -signal.SIGKILL

    def end_everything(self) -> None:
        """Ends the processes of this run that are still there."""
        for process in [*self.writers, self.reader, self.probe]:
            if process is not None:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)

    def _progress(self, seconds: float) -> str:
        return (
            f"{seconds:4.0f} s: round {self.rounds} of {self.args.rounds},"
            f" kills {sum(self.kills.values())}, keys acknowledged {int(self.ledger.acked.sum())},"
            f" lost {int(self.ledger.answered[3])},"
            f" longest pause {max(self.pauses, default=0):.3f} s"
        )

    def table(self, seconds: float) -> str:
        """What was done and what came of it."""
        rows: dict[str, object] = {
            "rounds": self.rounds,
            "seconds": round(seconds),
            "writer processes": self.runs,
            **{f"kills, {how}": count for how, count in self.kills.items()},
            "acknowledgements": int(self.ledger.answered[1]),
            "keys acknowledged": int(self.ledger.acked.sum()),
            "keys in filters that live on": int(self.ledger.acked[:, :FIRST_EXTRA].sum()),
            "extra filters made": int(self.ledger.created.sum()),
            "extra filters dropped": int(self.ledger.dropping.sum()),
            "verifications by a fresh process": self.checks,
            "pauses of survivors measured": len(self.pauses),
            "longest pause of a survivor": f"{max(self.pauses, default=0):.3f} s",
            "longest sync of the machine meanwhile": f"{self.longest_sync:.3f} s",
            "longest time between two operations": f"{int(self.ledger.longest.max()) / 1e9:.3f} s",
            "keys lost": int(self.ledger.answered[3]),
            "problems named by check": sum(": check: " in line for line in self.violations),
            "violations": len(self.violations),
        }
        return "\n".join(f"{name:<38}{value:>12}" for name, value in rows.items())


class Broken(Exception):
    """No use going on."""


def torture(path: Path, args: argparse.Namespace) -> bool:
    """Runs it and prints; True when the promise was kept."""
    begin = time.monotonic()
    run = Torture(path, args)
    try:
        run.run()
    except Broken:
        pass  # it is among the violations
    finally:
        run.end_everything()
        run._listen()
    print(run.table(time.monotonic() - begin))
    for line in run.violations[:20]:
        print("VIOLATION", line)
    return not run.violations
