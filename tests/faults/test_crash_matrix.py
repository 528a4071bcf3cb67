"""A process is really killed at every named step; what it acknowledged is all there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomstore.crash import POINTS
from tests.faults.promise import assert_goes_on, assert_promise_kept, run_workload

RECOVERY = [point for point in POINTS if point.startswith("recovery")]
# Those of a rebuild are visited in tests/rebuild/test_kills.py.
WORK = [point for point in POINTS if not point.startswith(("recovery", "rebuild"))]


def test_the_workload_ends_well_when_nothing_kills_it(path: Path) -> None:
    status, lines = run_workload(path)
    assert status == 0
    assert lines[-1] == '{"done": true}'
    assert_promise_kept(path, lines)


@pytest.mark.parametrize("time", [1, 4])
@pytest.mark.parametrize("point", WORK)
def test_killed_at_a_step_loses_nothing(path: Path, point: str, time: int) -> None:
    status, lines = run_workload(path, crash_at=f"{point}#{time}")
    if status == 0 and time > 1:
        assert lines[-1] == '{"done": true}'  # the step does not happen that often
        return
    assert status == -9, f"the workload never came to {point!r}"
    assert_promise_kept(path, lines)
    assert_goes_on(path)
    assert_promise_kept(path, lines)


@pytest.mark.parametrize("before", ["add: journal committed", "seal: next stage published"])
@pytest.mark.parametrize("point", RECOVERY)
def test_killed_during_recovery_loses_nothing(path: Path, point: str, before: str) -> None:
    status, lines = run_workload(path, crash_at=f"{before}#3")
    assert status == -9
    for _ in range(3):
        status, _ = run_workload(path, "--only-open", crash_at=point)
        assert status == -9
    assert_promise_kept(path, lines)
    assert_goes_on(path)
