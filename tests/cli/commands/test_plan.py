"""`bloomstore plan`: its numbers are those of the families, and its picture is a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import bloomstore
from bloomstore import Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence
from bloomstore.cli.support.plot import curve
from bloomstore.families.growth_plan import plan_growth
from tests.cli.runner import Cli


def test_stages_are_those_of_the_family_until_the_keys_fit() -> None:
    spec = Scalable(target_error=0.001, initial_capacity=1000, layout="sliced")
    steps = plan_growth(spec, 100_000)
    assert [step.geometry for step in steps] == [
        spec.stage(index, ()).geometry for index in range(7)
    ]
    assert [step.keys for step in steps] == [1000 * (2**n - 1) for n in range(1, 8)]
    assert steps[-1].lines == sum(step.geometry.hashes for step in steps)


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
def test_a_scalable_filter_never_passes_its_target_error(layout: str) -> None:
    spec = Scalable(target_error=0.01, initial_capacity=1000, layout=layout)  # type: ignore[arg-type]
    assert all(step.error <= 0.01 for step in plan_growth(spec, 10**9))


def test_a_blocked_stage_is_one_line_and_others_one_per_hash() -> None:
    chains = {
        name: plan_growth(spec, 10_000)
        for name, spec in Scalable(target_error=0.01).layouts().items()
    }
    assert {name: steps[0].lines for name, steps in chains.items()} == {
        "plain": chains["plain"][0].geometry.hashes,
        "sliced": chains["sliced"][0].geometry.hashes,
        "blocked": 1,
    }


@pytest.mark.parametrize(
    "spec",
    [
        Scalable(target_error=0.01, initial_capacity=2000),
        Scalable(target_error=0.01, initial_capacity=2000, layout="sliced", scheme="h3"),
        Scalable(target_error=0.01, initial_capacity=2000, layout="plain", scheme="h3"),
        Dynamic(capacity=3000, target_error=0.01),
        Dynamic(capacity=3000, target_error=0.01, layout="plain", scheme="h3"),
        Flexible(baseline_bits=1 << 15, hashes=5, error=0.01, expansion=Sequence([1, 2])),
        Fixed(capacity=20_000, target_error=0.01),
    ],
)
def test_a_real_filter_grows_as_planned(tmp_path: Path, spec: FilterSpec) -> None:
    keys = 20_000
    steps = plan_growth(spec, keys)
    with bloomstore.open(tmp_path / "filters") as store:
        made = store.create("made", spec)
        made.add_many(range(keys))
        stats = made.stats()
        assert list(store.check()) == []
    assert abs(len(stats.stages) - len(steps)) <= 1
    for stage, step in zip(stats.stages, steps, strict=False):
        assert stage.geometry == str(step.geometry)
        if stage.sealed:
            assert stage.keys == pytest.approx(step.stage_keys, rel=0.03)
            assert stage.error_rate == pytest.approx(step.stage_error, rel=0.2)


def test_the_table_compares_layouts_and_lists_stages(cli: Cli) -> None:
    lines = cli.ok("plan", "--capacity", "1e6", "--target-error", "0.001", "--grow", "10").lines
    layouts = [line.split()[0] for line in lines[3:6]]
    assert layouts == ["plain", "sliced", "blocked"]
    stages = [line.split() for line in lines if line[:5].strip().isdigit()]
    assert [stage[0] for stage in stages] == ["0", "1", "2", "3"]
    assert int(stages[-1][-1]) > 4 * 10  # a cache line per hash and stage
    assert sum("*" in line for line in lines[3:6]) == 1


def test_json_has_the_same_numbers(cli: Cli) -> None:
    document = cli.ok("plan", "--capacity", "10M", "--grow", "1000", "--json").json
    steps = plan_growth(Scalable(target_error=0.01, initial_capacity=10_000_000), 10**10)
    assert [stage["bits"] for stage in document["stages"]] == [step.bits for step in steps]
    assert document["layout"] == "sliced"
    assert set(document["layouts"]) == {"plain", "sliced", "blocked"}
    assert document["stages"][-1]["error"] <= 0.01
    assert document["spec"]["family"] == "scalable"


def test_layouts_that_cannot_be_are_not_compared(cli: Cli) -> None:
    document = cli.ok("plan", "--scheme", "h3", "--layout", "plain", "--json").json
    assert set(document["layouts"]) == {"plain", "sliced"}


def test_thousands_of_stages_do_not_fill_the_screen(cli: Cli) -> None:
    lines = cli.ok("plan", "--dynamic", "--capacity", "1000", "--grow", "5000").lines
    assert len(lines) < 45
    assert any(line.strip() == "..." for line in lines)
    assert any(line.split()[:1] == ["4999"] for line in lines)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--fixed --capacity 5 --grow 2", "a fixed filter does not grow"),
        ("--grow 0.5", "--grow must be in 1..1e12"),
        ("--grow nan", "--grow must be in 1..1e12"),
        ("--dynamic --capacity 1 --grow 1e6", "more than 10000 stages"),
        ("--capacity 1T --grow 1e12", "slice_bits must be in"),
        ("--fixed --capacity 5 --growth 2", "--growth belongs to scalable filters"),
    ],
)
def test_what_cannot_be_planned_is_one_line(cli: Cli, options: str, complaint: str) -> None:
    result = cli("plan", *options.split())
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert complaint in result.err


def test_speeds_by_rate_are_planned_for_a_steady_rate(cli: Cli) -> None:
    options = "--flexible --baseline-bits 64Ki --hashes 6 --error 0.01 --by-rate average"
    assert "as fast as in the first stage" in cli.ok("plan", *options.split()).out


@pytest.mark.parametrize(
    "options",
    [
        "--capacity 1000",
        "--fixed --capacity 1M",
        "--flexible --baseline-bits 1Mi --hashes 7 --error 0.01",
    ],
)
def test_plot_writes_a_picture(cli: Cli, tmp_path: Path, options: str) -> None:
    path = tmp_path / "plan.png"
    result = cli.ok("plan", *options.split(), "--plot", path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert result.lines[-1] == f"drawn: {path}"


def test_curves_begin_low_and_end_at_the_plan() -> None:
    steps = plan_growth(Scalable(target_error=0.01), 100_000)
    keys, bits, errors = curve(steps)
    assert keys == sorted(keys)
    assert keys[-1] == steps[-1].keys
    assert bits[-1] == pytest.approx(steps[-1].bits_per_key)
    assert errors[-1] == pytest.approx(steps[-1].error)
    assert errors == sorted(errors)
    assert steps[0].geometry.error_with(0) == 0.0


def test_plot_of_an_unknown_kind_is_refused(cli: Cli, tmp_path: Path) -> None:
    result = cli("plan", "--plot", tmp_path / "plan.nonsense")
    assert result.status == 2
    assert "plan.nonsense" in result.err


def test_plot_without_matplotlib_names_the_extra(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("plan", "--plot", tmp_path / "plan.png")
    assert (result.status, result.out) == (2, "")
    assert result.err == "bloomstore: --plot needs matplotlib: install bloomstore[plot]\n"
