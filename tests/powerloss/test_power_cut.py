"""The power fails at any moment of a store's life; what was acknowledged is there afterwards.

A few hundred images by default, thousands with `-m slow`; `tools/powerloss.py` runs at length.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bloomstore.crash import POINTS
from tests.powerloss.campaign import Judges, Plan, Recording, record, record_recovery
from tests.powerloss.device import Fault
from tests.powerloss.images import image
from tests.powerloss.plans import (
    DIRTY_WITHOUT_DESCRIPTORS,
    EVERYTHING,
    KILLED_BEFORE_THE_LAST_SYNC,
    NEW_FOLDERS,
    REFUSALS,
    killed,
    refused,
)

SEED = 1
slow = pytest.mark.slow
KILLS = [
    ("new file: synced", 6),
    ("add: journal committed", 3),
    ("process add: bits set", 3),
    ("seal: next stage published", 3),
    ("drop: file unlinked", 1),
]
WORK = [point for point in POINTS if not point.startswith("recovery")]
FIRST_REFUSALS = [fault for fault in REFUSALS if fault.call in ("sync", "msync", "allocate")][:4]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(EVERYTHING, tmp_path_factory.mktemp("everything"))


def assert_kept(judges: Judges, recorded: Recording, images: int) -> None:
    """No image breaks the promise."""
    report = judges.judge(recorded, images, SEED)
    assert report.images == images
    shown = "\n".join(str(violation) for violation in report.violations[:3])
    assert not report.violations, f"{len(report.violations)} of {images} images:\n{shown}"


def test_what_was_recorded_is_all_that_happened(everything: Recording) -> None:
    # `record` compared the folder that the steps make with the one that is there, byte by byte.
    trace = everything.trace
    assert trace.steps > 2000
    assert len(trace.acks) > 150
    assert any(path.startswith("store/segments/") for path in trace.last())


def test_an_image_at_the_end_with_everything_written_is_the_folder(everything: Recording) -> None:
    trace = everything.trace
    images = (image(trace, trace.steps, random.Random(seed)) for seed in range(60))
    whole = [files for files, how in images if how == "names kept, bytes kept"]
    assert whole
    assert all(files == trace.last() for files in whole)


@pytest.mark.parametrize("images", [120, pytest.param(2000, marks=slow)])
def test_nothing_is_lost_at_any_moment(judges: Judges, everything: Recording, images: int) -> None:
    assert_kept(judges, everything, images)


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=slow)])
def test_nothing_is_lost_when_recovery_itself_is_cut_off(
    judges: Judges, everything: Recording, tmp_path: Path, times: int
) -> None:
    for number in range(times):
        once = record_recovery(everything, f"{SEED} {number}", tmp_path / "recovery")
        assert_kept(judges, once, 16)
        twice = record_recovery(once, f"{SEED} {number}", tmp_path / "recovery of recovery")
        assert_kept(judges, twice, 8)


@pytest.mark.parametrize(
    "plan",
    [NEW_FOLDERS, KILLED_BEFORE_THE_LAST_SYNC, DIRTY_WITHOUT_DESCRIPTORS],
    ids=lambda plan: plan.name,
)
def test_nothing_is_lost_however_the_store_began_and_ended(
    judges: Judges, plan: Plan, tmp_path: Path
) -> None:
    assert_kept(judges, record(plan, tmp_path), 30)


@pytest.mark.parametrize(
    ("point", "time"),
    [
        (point, time) if (point, time) in KILLS else pytest.param(point, time, marks=slow)
        for point in WORK
        for time in (1, 3, 6)
    ],
)
def test_nothing_is_lost_when_a_process_was_killed_before(
    judges: Judges, point: str, time: int, tmp_path: Path
) -> None:
    assert_kept(judges, record(killed(point, time), tmp_path), 16)


@pytest.mark.parametrize(
    "fault",
    [fault if fault in FIRST_REFUSALS else pytest.param(fault, marks=slow) for fault in REFUSALS],
    ids=str,
)
def test_nothing_is_lost_when_the_disk_refused_something_before(
    judges: Judges, fault: Fault, tmp_path: Path
) -> None:
    assert_kept(judges, record(refused(fault), tmp_path), 16)
