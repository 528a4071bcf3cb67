"""`bloomstore create`: options become a spec, and what does not fit is refused before anything."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import ByRate, Dynamic, Fixed, Flexible, LinearTrend, Scalable, Sequence
from tests.cli.runner import Cli


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ("", Scalable(target_error=0.01, layout="sliced")),
        ("--scalable --target-error 0.1%", Scalable(target_error=0.001, layout="sliced")),
        (
            "--capacity 1e3 --growth 4 --tightening 0.5 --layout sliced --seed 0x10",
            Scalable(
                target_error=0.01,
                initial_capacity=1000,
                growth=4.0,
                tightening=0.5,
                layout="sliced",
                seed=16,
            ),
        ),
        (
            "--fixed --capacity 10k --target-error 1e-4 --layout plain --scheme h3",
            Fixed(capacity=10_000, target_error=1e-4, layout="plain", scheme="h3"),
        ),
        (
            "--family dynamic --capacity 1_000 --layout sliced",
            Dynamic(capacity=1000, target_error=0.01, layout="sliced"),
        ),
        (
            "--flexible --baseline-bits 64Ki --hashes 6 --error 1e-3 --speeds 1,2,3",
            Flexible(baseline_bits=1 << 16, hashes=6, error=1e-3, expansion=Sequence([1, 2, 3])),
        ),
        (
            "--flexible --baseline-bits 65536 --hashes 6 --capacity 4k --by-rate trend",
            Flexible(
                baseline_bits=1 << 16, hashes=6, capacity=4000, expansion=ByRate(LinearTrend())
            ),
        ),
    ],
)
def test_options_become_the_spec(
    cli: Cli, new_store: Path, options: str, spec: bloomstore.Scalable
) -> None:
    result = cli.ok("create", new_store, "seen", *options.split())
    assert result.out.startswith("created seen: ")
    with bloomstore.open(new_store, read_only=True) as store:
        assert store["seen"].spec == spec
        assert store["seen"].durability == "commit"


def test_durability_is_kept_with_the_filter(cli: Cli, new_store: Path) -> None:
    cli.ok("create", new_store, "seen", "--durability", "process")
    with bloomstore.open(new_store, read_only=True) as store:
        assert store["seen"].durability == "process"


def test_json_tells_what_was_made(cli: Cli, new_store: Path) -> None:
    document = cli.ok("create", new_store, "seen", "--json").json
    assert document["filter"] == "seen"
    assert document["spec"]["family"] == "scalable"
    assert document["durability"] == "commit"


def test_an_existing_name_is_refused_and_its_keys_stay(cli: Cli, store: Path) -> None:
    result = cli("create", store, "seen")
    assert (result.status, result.out) == (2, "")
    assert result.err == "bloomstore: a filter named 'seen' already exists\n"
    assert cli.ok("query", store, "seen", "alice").out == "maybe\talice\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--fixed --capacity 5 --growth 2", "--growth belongs to scalable filters, not to fixed"),
        ("--speeds 1,2", "--speeds belongs to flexible filters, not to scalable"),
        ("--hashes 4", "--hashes belongs to flexible filters"),
        (
            "--flexible --layout plain",
            "--layout belongs to fixed and scalable and dynamic filters, not to flexible",
        ),
        ("--fixed", "a fixed filter needs --capacity"),
        ("--dynamic", "a dynamic filter needs --capacity"),
        ("--flexible --hashes 3", "a flexible filter needs --baseline-bits"),
        ("--flexible --baseline-bits 1Ki --hashes 3", "exactly one of --capacity and --error"),
        ("--target-error 2", "target_error must be in"),
        ("--layout blocked --scheme h3", "layout 'blocked' takes hash scheme 'spread'"),
        ("--seed 99999999999", "seed must be an int"),
        ("--flexible --baseline-bits 1Ki --hashes 3 --error 0.1 --speeds 0", "expanding speed"),
    ],
)
def test_options_that_do_not_fit_are_refused_and_no_store_is_made(
    cli: Cli, tmp_path: Path, options: str, complaint: str
) -> None:
    result = cli("create", tmp_path / "filters", "seen", *options.split())
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("bloomstore: ")
    assert result.err.count("\n") == 1
    assert complaint in result.err
    assert not (tmp_path / "filters").exists()


@pytest.mark.parametrize(
    "options", ["--fixed --dynamic", "--speeds 1 --by-rate last", "--capacity many", "--speeds a"]
)
def test_options_that_cannot_be_read_are_a_usage_error(
    cli: Cli, tmp_path: Path, options: str
) -> None:
    result = cli("create", tmp_path / "filters", "seen", *options.split())
    assert result.status == 2
    assert "usage: bloomstore create" in result.err
