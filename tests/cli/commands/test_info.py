"""`bloomstore info`: everything of a filter."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed, kernels
from tests.cli.runner import Cli


def test_tells_the_spec_the_counts_and_every_stage(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened["seen"].add_many(range(500))
        stats = opened["seen"].stats()
    result = cli.ok("info", store, "seen")
    facts = dict(line.split("  ", 1) for line in result.lines if "  " in line)
    assert facts["family"].strip().startswith("scalable (target error 0.001, initial capacity 100,")
    assert facts["keys"].strip() == f"{stats.keys} were new when they were added"
    assert facts["state"].strip() == "sound"
    assert facts["journal"].strip() == "0 rows since the last checkpoint"
    assert len(stats.stages) > 1
    for stage in stats.stages:
        vector = stage.geometry.partition(" ")[2]
        assert any(line.lstrip().startswith(f"{stage.stage}  {vector}") for line in result.lines)
    first, last = result.lines[-len(stats.stages)], result.lines[-1]
    assert "██████████" in first
    assert "░" in last


def test_without_a_name_tells_of_all_filters(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened.create("words", Fixed(capacity=1000, target_error=0.01))
    lines = cli.ok("info", store).lines
    assert [line for line in lines if line.startswith("filter ")] == [
        "filter        seen",
        "filter        words",
    ]


def test_names_the_kernels_and_warns_when_they_are_the_slow_ones(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "BACKEND", "compiled")
    result = cli.ok("info", store)
    assert "kernels  compiled" in result.lines
    assert "warning" not in result.out
    monkeypatch.setattr(kernels, "BACKEND", "numpy")
    result = cli.ok("info", store)
    assert "kernels  numpy" in result.lines
    assert "warning: the compiled kernels are missing" in result.out


def test_json_has_stats_estimate_and_kernels(cli: Cli, store: Path) -> None:
    document = cli.ok("info", store, "seen", "--json").json
    (seen,) = document["filters"]
    assert document["kernels"] == kernels.BACKEND
    assert seen["keys"] == 2
    assert seen["spec"]["target_error"] == 0.001
    assert seen["stages"][0]["fill"] > 0
    assert seen["estimate_count"]["low"] <= 2 <= seen["estimate_count"]["high"]


def test_numbers_that_json_lacks_become_null(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = bloomstore.Estimate(float("inf"), 0.0, float("inf"), uncertain=True)
    monkeypatch.setattr(bloomstore.Filter, "estimate_count", lambda _: endless)
    (seen,) = cli.ok("info", store, "--json").json["filters"]
    assert seen["estimate_count"]["value"] is None
    assert "inf (0 .. inf at 95%, uncertain)" in cli.ok("info", store).out


def test_it_says_when_a_rebuild_pays_and_by_how_much(cli: Cli, store: Path) -> None:
    assert "rebuild pays" not in cli.ok("info", store, "seen").out
    with bloomstore.open(store) as opened:
        opened["seen"].add_many(range(5000))
    result = cli.ok("info", store, "seen")
    assert "rebuild pays  6 stages instead of 1" in result.out
    (seen,) = cli.ok("info", store, "seen", "--json").json["filters"]
    pays = seen["rebuild_pays"]
    assert pays["bits"][0] > pays["bits"][1]
    assert pays["probes"][0] > 2 * pays["probes"][1]
    assert pays["error"][1] <= 0.001


def test_deleted_rows_of_a_guard_are_a_reason(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened["seen"].add_many(range(90))
        opened.notes["guard/seen"] = b'{"deleted": 50}'
    assert "50 rows were deleted since it was built" in cli.ok("info", store, "seen").out
