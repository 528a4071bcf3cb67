"""The benchmark runs, finds its rows by their names, and refuses what it does not understand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_rows_are_found_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    rows = "single hit,checks: bulk"
    done = bench("--quick", "--keys", "2000", "--rounds", "1", "--rows", rows, "--json", str(file))
    assert done.returncode == 0, done.stderr
    found = [(row["name"], row["detail"]) for row in json.loads(file.read_text())["rows"]]
    assert found == [
        ("single hit", "int 0.01, 2e+03"),
        ("single hit", "str 0.01, 2e+03"),
        ("checks: bulk", "int array"),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rows", "nonsense", "--keys", "10"], "no row is named 'nonsense'"),
        (["--kinds", "foo"], "expected int, str or int,str, got 'foo'"),
        (["--keys", "0"], "expected a whole number from 1 on, got '0'"),
        (["--errors", "2"], "expected numbers between 0 and 1, got '2'"),
        (["--folder", "/nowhere"], "/nowhere: not a folder"),
        (["--json", "/nowhere/a.json"], "/nowhere/a.json: there is no folder /nowhere"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], complaint: str) -> None:
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
