"""Broken orders that no power cut shows: two processes at once, and a process that is killed.

Each scene returns how many acknowledged keys a running reader does not find; it is played with the
mutant and with the real library. The reader is this process; it has opened the store before.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bloomstore
from bloomstore import Fixed, Scalable
from tests.support.checkout import environment

WRITERS = 2
KEYS = 60


def two_writers(path: Path, mutant: str) -> int:
    """Two processes add to one filter at the same time; both set bits slowly."""
    with bloomstore.open(path) as store:
        store.create("users", Fixed(capacity=200, target_error=0.01))
    with bloomstore.open(path, read_only=True) as store:
        users = store["users"]
        assert users.state.is_sound
        writers = [_start(path, mutant, "one by one", str(part)) for part in range(WRITERS)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "added\n"
        keys = [f"{part} {number}" for part in range(WRITERS) for number in range(KEYS)]
        lost = [key for key in keys if key not in users]
        for writer in writers:
            _end(writer, 0)
    return len(lost)


def killed_before_the_word(path: Path, mutant: str) -> int:
    """A process dies between the commit of a new stage and the generation word; another adds."""
    with bloomstore.open(path) as store:
        store.create("users", Scalable(target_error=0.01, initial_capacity=50))
        store["users"].add_many([f"first {number}" for number in range(50)])
    with bloomstore.open(path, read_only=True) as store:
        users = store["users"]
        assert users.may_contain_many([f"first {number}" for number in range(50)]).all()
        grower = _start(path, mutant, "many", "grow", crash_at="generation: committed")
        _end(grower, -9)
        writer = _start(path, mutant, "few", "second")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "added\n"
        lost = [number for number in range(10) if f"second {number}" not in users]
        _end(writer, 0)
    return len(lost)


SCENES = {
    "apply outside the lock": (two_writers, "applied slowly"),
    "generation word not repaired": (killed_before_the_word, ""),
}


def _start(
    path: Path, mutant: str, what: str, label: str, crash_at: str = ""
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.powerloss.scenes", path, mutant, what, label],
        env=environment(BLOOMSTORE_CRASH_AT=crash_at),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str], status: int) -> None:
    process.communicate()
    assert process.returncode == status, f"ended with {process.returncode}, expected {status}"


def main(path: str, mutant: str, what: str, label: str) -> None:
    """One writer: adds, says so, and waits until it may close."""
    from tests.powerloss.mutants import MUTANTS, applied_slowly

    if mutant == "applied slowly":
        applied_slowly()
    elif mutant:
        MUTANTS[mutant]()
    with bloomstore.open(path) as store:
        users = store["users"]
        if what == "one by one":
            for number in range(KEYS):
                users.add(f"{label} {number}")
        else:
            users.add_many([f"{label} {number}" for number in range(200 if what == "many" else 10)])
        print("added", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
