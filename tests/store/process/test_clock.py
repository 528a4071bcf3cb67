"""How fast keys arrive is measured by a clock that nobody sets, and a wrong one costs little."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

import bloomstore
from bloomstore import ByRate, Flexible
from bloomstore.catalog.rows import StageRow, pack_stage, stage_key, unpack_stage
from bloomstore.families.expansion import MOST_DOUBLINGS
from bloomstore.store.durable import clock

CAPACITY = 100
SPEC = Flexible(baseline_bits=4096, hashes=4, capacity=CAPACITY, expansion=ByRate())


class Clocks:
    """The two clocks of a machine: one that people set, one that counts from its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.boot = 1_800_000_000.0, 5000.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(clock, "since_boot", lambda: self.boot)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def grow(seen: bloomstore.Filter) -> None:
    """Adds keys until there is one more stage."""
    before = len(seen.stats().stages)
    key = sum(stage.keys for stage in seen.stats().stages) * 10
    while len(seen.stats().stages) == before:
        seen.add(key)
        key += 1


def lengths(seen: bloomstore.Filter) -> list[int]:
    return [stage.bits // 4096 for stage in seen.stats().stages]


def rows_of(seen: bloomstore.Filter) -> list[StageRow]:
    return [stage.row for stage in seen._current().live.stages]


@pytest.mark.parametrize("shift", [-3600.0, -99.9, -100.0, 3600.0, -1e9, 1e9])
def test_a_clock_that_is_set_changes_no_size_within_a_boot(
    tmp_path: Path, clocks: Clocks, shift: float
) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", SPEC)
        clocks.wait(100.0)
        grow(seen)
        clocks.wait(100.0)
        clocks.wall += shift
        grow(seen)
        clocks.wait(25.0)
        grow(seen)
        assert lengths(seen) == [1, 1, 1, 4]


def test_a_clock_that_was_set_back_between_two_boots_is_left_out_and_said(
    tmp_path: Path, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", SPEC)
        clocks.wait(100.0)
        grow(seen)
        store._core.boot = "another boot"
        clocks.boot = 10.0
        clocks.wall -= 3600.0
        with caplog.at_level(logging.WARNING, "bloomstore"):
            grow(seen)
        assert "no clock tells how long stage 1 was open" in caplog.text
        assert lengths(seen) == [1, 1, 1]
        clocks.wait(50.0)
        grow(seen)
        assert lengths(seen) == [1, 1, 1, 2]


def test_across_boots_the_wall_clock_counts(tmp_path: Path, clocks: Clocks) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", SPEC)
        clocks.wait(100.0)
        grow(seen)
        store._core.boot = "another boot"
        clocks.boot = 10.0
        clocks.wall += 50.0
        grow(seen)
        assert lengths(seen) == [1, 1, 2]


def test_a_stage_is_at_most_four_times_as_long_as_the_one_before(
    tmp_path: Path, clocks: Clocks
) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", SPEC)
        clocks.wait(1e6)
        for _ in range(3):
            grow(seen)  # no time passes at all between the next ones
            clocks.wait(1e-9)
        assert lengths(seen) == [1, 1, 4, 16]
    rates = [1.0, 1e9, 1e9, 1e9, 2.0, 1e9]
    speeds = [ByRate().speed(stage, rates[:stage]) for stage in range(len(rates) + 1)]
    assert speeds == [1, 1, 3, 5, 7, 2, 4]
    assert MOST_DOUBLINGS == 2


def test_rows_without_the_clock_of_a_boot_are_read(tmp_path: Path, clocks: Clocks) -> None:
    with bloomstore.open(tmp_path / "s") as store:
        seen = store.create("seen", SPEC)
        row = rows_of(seen)[0]
        assert row.opened_clock == clocks.boot
        key = stage_key(row.filter_number, row.chain, row.stage)
        old = (
            pack_stage(row).replace(b'"opened_boot":', b'"a":').replace(b'"opened_clock":', b'"b":')
        )
        read = unpack_stage(key, old)
        assert read == replace(row, opened_boot=None, opened_clock=None)
        clocks.wait(50.0)
        assert clock.seconds_open(read, store._core.boot) == 50.0
        assert clock.arrival_rate(replace(read, filled_at=read.opened_at + 50.0)) == 2.0
        assert clock.arrival_rate(replace(read, filled_at=read.opened_at - 50.0)) is None
