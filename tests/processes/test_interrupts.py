"""An exception of a signal handler at any moment: the operation raises, and nothing stays held.

Backward jumps, other threads and other processes are left to `tools/torture.py --interrupts`, which
sends real signals at random.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import environment

OPERATIONS = "add add_many batch ask note fence create checkpoint check rebuild".split()


def live(path: Path, *arguments: object, seconds: float = 60) -> None:
    """Runs interrupted_life.py, whose assertions end it with a traceback."""
    program = Path(__file__).with_name("interrupted_life.py")
    command = [sys.executable, str(program), str(path), *map(str, arguments)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, env=environment()
    )
    # In finalizers and in the hooks of a fork Python prints an exception and goes on.
    assert ran.returncode == 0, ran.stderr[-5000:]


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_interrupt_at_many_points_leaves_nothing_held(
    path: Path, durability: str, operation: str
) -> None:
    live(path, operation, durability, 40)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_interrupt_at_every_point_leaves_nothing_held(
    path: Path, durability: str, operation: str
) -> None:
    live(path, operation, durability, 5000, seconds=250)


def test_an_interrupt_of_opening_and_closing_leaves_nothing_open(path: Path) -> None:
    live(path, "open")


def test_an_interrupt_of_a_fork_leaves_nothing_locked(path: Path) -> None:
    live(path, "fork")


def test_no_operation_imports_a_part_of_numpy(path: Path) -> None:
    """An interrupt in the middle of an import is lost, or what was imported is broken."""
    program = """
import sys
import bloomstore
before = set(sys.modules)
with bloomstore.open(sys.argv[1]) as store:
    seen = store.create("seen", bloomstore.Dynamic(capacity=100, target_error=0.05))
    seen.add_many(range(500))
    seen.stats(), seen.estimate_count(), seen.may_contain_many(range(9))
    with store.batch():
        seen.add("one")
    with store.rebuild("seen") as coming:
        coming.add_many(range(500))
        coming.switch()
    list(store.check()), list(store.repair())
print(*[name for name in set(sys.modules) - before if name.startswith("numpy")])
"""
    command = [sys.executable, "-c", program, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == []
