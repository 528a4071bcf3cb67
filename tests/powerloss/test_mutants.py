"""Every rule of the order is needed: the library with one rule broken is caught by these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.powerloss.campaign import Judges, record
from tests.powerloss.mutants import MUTANTS
from tests.powerloss.plans import MUTANT_PLANS, with_mutant
from tests.powerloss.scenes import SCENES

PLAYS = 10
IMAGES = 500  # the shyest is shown by one in seventy; the first image that does is enough


def test_every_mutant_is_shown_somewhere() -> None:
    assert sorted(MUTANTS) == sorted([*MUTANT_PLANS, *SCENES])


@pytest.mark.parametrize("mutant", MUTANT_PLANS)
def test_a_power_cut_shows_the_mutant(judges: Judges, mutant: str, tmp_path: Path) -> None:
    report = judges.judge(record(with_mutant(mutant), tmp_path), IMAGES, 1, enough=1)
    assert report.violations, f"{report.images} images of {mutant!r} show nothing"


@pytest.mark.parametrize("mutant", SCENES)
def test_running_processes_show_the_mutant(mutant: str, tmp_path: Path) -> None:
    play, unbroken = SCENES[mutant]
    assert play(tmp_path / "real", unbroken) == 0
    # Two processes must meet in the same moment: on a busy machine they may need several plays.
    assert any(play(tmp_path / f"broken{turn}", mutant) > 0 for turn in range(PLAYS))
