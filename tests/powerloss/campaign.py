"""Recordings, and many images of each on all processors.

In: which parts of the program to run, with which kills, faults and mutants (a Plan), out: a
Recording; in: a recording and a number of images, out: a Report with every violation and what is
needed to make its image again.
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
from types import TracebackType
from typing import Self

from tests.powerloss.device import Fault, failing, recording
from tests.powerloss.folders import Image, pages_of, read_folder, write_folder
from tests.powerloss.images import image
from tests.powerloss.trace import Trace
from tests.support.checkout import environment

IMAGE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a recording: parts of the program, and what befalls it."""

    parts: tuple[str, ...]
    crash_at: str = ""
    faults: tuple[Fault, ...] = ()
    mutant: str = ""
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recorded: processes that use one store, one after the other.

    after_errors: the disk refused something, and filters may say so.
    """

    name: str
    runs: tuple[Run, ...]
    store: str = "store"
    boot: str = "the boot before the power cut"
    after_errors: bool = False


@dataclass(slots=True)
class Recording:
    """What the processes of a plan asked of the device."""

    plan: Plan
    trace: Trace
    promised_before: list[str]

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def store(self) -> str:
        return self.plan.store

    @property
    def after_errors(self) -> bool:
        return self.plan.after_errors

    def promised(self, moment: int) -> list[str]:
        """What the next user may rely on if the power fails before this step."""
        return self.promised_before + self.trace.acknowledged(moment)


@dataclass(frozen=True, slots=True)
class Violation:
    """An image that breaks the promise."""

    recording: str
    moment: int
    seed: str
    how: str
    wrong: list[str]
    story: list[str]

    def __str__(self) -> str:
        lines = [
            f"{self.recording}: power cut before step {self.moment} ({self.how})",
            *(f"    found    {line}" for line in self.wrong[:4]),
            *(f"    before   {line}" for line in self.story),
        ]
        return "\n".join(lines)


@dataclass(slots=True)
class Report:
    """What the images of one recording showed."""

    name: str
    steps: int
    promises: int
    images: int = 0
    violations: list[Violation] = field(default_factory=list)


def record(
    plan: Plan, folder: Path, start: Image | None = None, promised_before: list[str] | None = None
) -> Recording:
    """Runs the processes of a plan under the recorder, beginning with the files of an image."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root, log, acks = folder / "root", folder / "log", folder / "acks"
    write_folder(start or {}, root)
    before, inodes = read_folder(root)
    log.touch()
    acks.touch()
    for run in plan.runs:
        _run(plan, run, root, log, acks)
        with log.open("ab") as file:
            file.write(pages_of(root))  # what a killed process stored after its last step
    trace = Trace(log.read_bytes(), root, before, inodes)
    if trace.last() != read_folder(root)[0]:
        raise RuntimeError(f"{plan.name}: the recorded steps do not make the folder that is there")
    return Recording(plan, trace, promised_before or [])


def _run(plan: Plan, run: Run, root: Path, log: Path, acks: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.powerloss.program",
        root / plan.store,
        "--boot",
        plan.boot,
    ]
    if run.mutant:
        command += ["--mutant", run.mutant]
    variables = environment(**recording(root, log, acks, *run.faults))
    with acks.open("ab") as out:
        done = subprocess.run(
            [*command, *run.parts],
            env=variables | {"BLOOMSTORE_CRASH_AT": run.crash_at},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    is_killed = run.crash_at or any(not fault.error for fault in run.faults)
    if done.returncode != (-9 if is_killed else 0) and not run.may_fail:
        raise RuntimeError(f"{plan.name}: {run} ended with {done.returncode}\n{done.stderr}")


def record_recovery(recorded: Recording, seed: str, folder: Path) -> Recording:
    """Records a process that recovers one image of this recording."""
    chance = random.Random(seed)
    (moment,) = choose_moments(recorded.trace, chance, 1)
    files, _ = image(recorded.trace, moment, chance)
    plan = Plan(
        f"recovery of {recorded.name}",
        (Run(("recover",)),),
        store=recorded.store,
        boot=f"the boot after {recorded.plan.boot}",
        after_errors=recorded.after_errors,
    )
    return record(plan, folder, files, recorded.promised(moment))


def choose_moments(trace: Trace, chance: random.Random, count: int) -> list[int]:
    """Moments of power cuts: around syncs, names and promises, anywhere, and at the end."""
    hot = sorted({moment + add for moment in trace.moments for add in (0, 1)})
    chosen = [
        chance.choice([chance.choice(hot), chance.choice(hot), chance.randrange(trace.steps)])
        for _ in range(count - count // 8)
    ]
    return chosen + [trace.steps] * (count // 8)


class Judges:
    """Processes that build and judge images, as many as there are processors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._workers = [_Worker(folder) for _ in range(min(os.cpu_count() or 1, 8))]
        self._recordings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.close()

    def judge(
        self,
        recorded: Recording,
        images: int,
        seed: int,
        *,
        enough: int = 0,
        keep: Path | None = None,
    ) -> Report:
        """Builds and judges images of a recording; stops early once it has `enough` violations."""
        self._recordings += 1
        file = self._folder / f"recording-{self._recordings}"
        file.write_bytes(pickle.dumps(recorded))
        report = Report(recorded.name, recorded.trace.steps, len(recorded.trace.acks))
        todo: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        chance = random.Random(f"{recorded.name} {seed}")
        for one in enumerate(choose_moments(recorded.trace, chance, images)):
            todo.put(one)
        lock = threading.Lock()  # protects the report

        def drive(worker: _Worker) -> None:
            with contextlib.suppress(queue.Empty):
                while not enough or len(report.violations) < enough:
                    number, moment = todo.get_nowait()
                    chosen = f"{seed}.{number}"
                    how, wrong = worker.ask(f"{file} {number} {moment} {chosen}")
                    with lock:
                        report.images += 1
                        if wrong:
                            story = recorded.trace.story(moment)
                            name = recorded.name
                            report.violations.append(
                                Violation(name, moment, chosen, how, wrong, story)
                            )

        threads = [threading.Thread(target=drive, args=(worker,)) for worker in self._workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        file.unlink()
        if keep is not None and report.violations:
            first = report.violations[0]
            shutil.rmtree(keep, ignore_errors=True)
            files, _ = image(recorded.trace, first.moment, random.Random(first.seed))
            write_folder(files, keep)
        return report


class _Worker:
    """One process that judges; another takes its place when it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def ask(self, line: str) -> tuple[str, list[str]]:
        """Judges one image: how it was chosen, and what is wrong with it."""
        for _ in range(2):  # whatever else may have ended the process, an image does it again
            answer = self._ask(line)
            if answer:
                found = json.loads(answer)
                return found["how"], found["wrong"]
            status = self.close()
        return "", [f"the process that opened the image ended with {status}, twice"]

    def _ask(self, line: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.powerloss.worker", self._folder],
                env=environment(**failing(self._folder, skip_syncs=True)),
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
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return process.stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            timer.cancel()

    def close(self) -> int | None:
        """Ends the process and returns its status."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()
