"""tools/compare/growth.py prints what the formulas say, as a table or as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.compare.growth", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, float]]:
    finished = run("--json")
    assert finished.returncode == 0, finished.stderr
    found: list[dict[str, float]] = json.loads(finished.stdout)
    return found


def test_json_has_a_row_for_every_layout_growth_and_tightening(
    rows: list[dict[str, float]],
) -> None:
    assert len({(row["layout"], row["growth"], row["tightening"]) for row in rows}) == 48


def test_mean_lies_between_the_full_and_the_worst_space(rows: list[dict[str, float]]) -> None:
    for row in rows:
        assert 9.58 < row["full"] <= row["at_1000x"] <= row["worst"]
        assert row["mean"] < row["worst"]


def test_ten_doublings_reach_a_thousand(rows: list[dict[str, float]]) -> None:
    doubling = [row for row in rows if row["growth"] == 2.0]
    assert {row["stages"] for row in doubling} == {10}
    # Stage sizes 1, 2, .. 512: at 1000x all ten exist, and the last is nearly full.
    assert all(row["at_1000x"] == pytest.approx(row["full"] * 1.023) for row in doubling)


def test_wrong_target_error_ends_with_status_2() -> None:
    finished = run("--target-error", "1.5")
    assert finished.returncode == 2
    assert "must be in (0, 1)" in finished.stderr
