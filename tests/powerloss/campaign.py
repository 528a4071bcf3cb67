"""Recordings, and many images of each on all processors.

In: which parts of the program to run, with which kills, faults and mutants, out: a Recording; in:
a recording and a number of images, out: a Report with every violation and how to make it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import random
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from powerloss.device import Fault, failing, recording
from powerloss.trace import Image, Trace, pages_of, read_folder, write_folder

HERE = Path(__file__).parent
STORE = "store"
DEEP = "new/folders/store"  # the folders above are made by the store, too
IMAGE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a recording."""

    parts: tuple[str, ...]
    crash_at: str = ""
    faults: tuple[Fault, ...] = ()
    boot: str = "the boot before"
    mutant: str = ""
    may_fail: bool = False


@dataclass
class Recording:
    """What one or more processes asked of the device, one after the other."""

    name: str
    trace: Trace
    store: str = STORE
    promised_before: list[str] = field(default_factory=list)
    any_state: bool = False


@dataclass
class Violation:
    """An image that breaks the promise, and how to make it again."""

    recording: str
    moment: int
    seed: str
    how: str
    wrong: list[str]

    def __str__(self) -> str:
        lines = "\n    ".join(self.wrong[:4])
        return f"{self.recording}: cut before step {self.moment} ({self.how}):\n    {lines}"


@dataclass
class Report:
    """The outcome of a campaign."""

    recording: str
    steps: int
    promised: int
    images: int = 0
    violations: list[Violation] = field(default_factory=list)


def record(
    name: str,
    runs: list[Run],
    folder: Path,
    *,
    store: str = STORE,
    start: Image | None = None,
    promised_before: list[str] | None = None,
    any_state: bool = False,
) -> Recording:
    """Runs the program under the recorder, one process after the other."""
    root, log, acks = folder / "root", folder / "log", folder / "acks"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_folder(start or {}, root)
    before, inodes = read_folder(root)
    acks.touch()
    for run in runs:
        command = [sys.executable, HERE / "program.py", root / store, "--boot", run.boot]
        if run.mutant:
            command += ["--mutant", run.mutant]
        environment = os.environ | recording(root, log, acks, *run.faults)
        with acks.open("ab") as out:
            done = subprocess.run(
                [*command, *run.parts],
                env=environment | {"BLOOMSTORE_CRASH_AT": run.crash_at},
                stdout=out,
                stderr=subprocess.PIPE,
                check=False,
            )
        killed = run.crash_at or any(not fault.error for fault in run.faults)
        if done.returncode != (-9 if killed else 0) and not run.may_fail:
            raise RuntimeError(f"{name}: {run}: {done.returncode}\n{done.stderr.decode()}")
        with log.open("ab") as file:
            file.write(pages_of(root))  # what a killed process stored after its last step
    trace = Trace(log.read_bytes(), root, before, inodes)
    if trace.last() != read_folder(root)[0]:
        raise RuntimeError(f"{name}: the recorded steps do not make the folder that is there")
    return Recording(name, trace, store, promised_before or [], any_state)


def moments(trace: Trace, chance: random.Random, count: int) -> list[int]:
    """Moments of power cuts: around syncs, names and promises, anywhere, and at the end."""
    hot = sorted({moment + add for moment in trace.moments for add in (0, 1)})
    chosen = [
        chance.choice([chance.choice(hot), chance.choice(hot), chance.randrange(trace.steps)])
        for _ in range(count - count // 8)
    ]
    return chosen + [trace.steps] * (count // 8)


def judge(
    recorded: Recording, images: int, seed: int, folder: Path, *, stop_at: int = 0
) -> Report:
    """Builds and verifies images; with `stop_at`, no more once so many violations were found."""
    trace_file = folder / "trace"
    folder.mkdir(parents=True, exist_ok=True)
    trace_file.write_bytes(pickle.dumps(recorded))
    chance = random.Random(f"{recorded.name} {seed}")
    report = Report(recorded.name, recorded.trace.steps, len(recorded.trace.acks))
    todo: queue.SimpleQueue[tuple[int, int, str]] = queue.SimpleQueue()
    for number, moment in enumerate(moments(recorded.trace, chance, images)):
        todo.put((number, moment, f"{recorded.name} {seed} {number}"))
    lock = threading.Lock()

    def drive() -> None:
        worker = Worker(trace_file, folder)
        with contextlib.closing(worker):
            while True:
                with lock:
                    if stop_at and len(report.violations) >= stop_at:
                        return
                try:
                    number, moment, chosen = todo.get_nowait()
                except queue.Empty:
                    return
                answer = worker.ask(number, moment, chosen)
                with lock:
                    report.images += 1
                    if answer["wrong"]:
                        report.violations.append(
                            Violation(
                                recorded.name, moment, chosen, answer["how"], answer["wrong"]
                            )
                        )

    threads = [threading.Thread(target=drive) for _ in range(min(os.cpu_count() or 1, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


class Worker:
    """A process that judges images; it is replaced when it dies."""

    def __init__(self, trace_file: Path, folder: Path) -> None:
        self._trace_file = trace_file
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def ask(self, number: int, moment: int, seed: str) -> dict[str, object]:
        """Judges one image."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "worker.py", self._trace_file, self._folder],
                env=os.environ | failing(self._folder, skip_syncs=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(IMAGE_SECONDS, process.kill)
        timer.start()
        try:
            process.stdin.write(f"{number} {moment} {seed.replace(' ', '_')}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if line:
            return dict(json.loads(line))
        status = process.wait()
        self.close()
        return {"how": "", "wrong": [f"the process that opened it ended with {status}"]}

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None
