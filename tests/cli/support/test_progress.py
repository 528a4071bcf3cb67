"""Progress is for people who wait at a terminal, and for nobody else."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stderr
from typing import Any

import pytest

from bloomstore.cli.support import progress as progress_module
from bloomstore.cli.support.progress import Progress
from tests.cli.runner import Terminal


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture
def no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_rich_bar", lambda: None)


def _work(clock: Clock, seconds: float, terminal: Terminal, **options: Any) -> Progress:
    with redirect_stderr(terminal), Progress(1000, **options) as progress:
        for _ in range(4):
            clock.now += seconds / 4
            progress.advance(50, 250)
    return progress


@pytest.mark.usefixtures("no_rich")
def test_a_long_input_shows_keys_rate_and_share_then_cleans_up(
    clock: Clock,
) -> None:
    terminal = Terminal()
    progress = _work(clock, 4.0, terminal)
    assert (progress.keys, progress.done) == (200, 1000)
    drawn = terminal.text.split("\r")
    assert drawn[1].rstrip() == "50 keys, 50/s, 25% of 0.977 KiB"
    assert drawn[4].rstrip() == "200 keys, 50/s, 100% of 0.977 KiB"
    assert drawn[5].strip() == ""
    assert drawn[6] == ""


@pytest.mark.usefixtures("no_rich")
def test_a_short_input_shows_nothing(clock: Clock) -> None:
    terminal = Terminal()
    _work(clock, 0.9, terminal)
    assert terminal.text == ""


@pytest.mark.usefixtures("no_rich")
def test_nothing_is_shown_where_it_is_not_wanted(clock: Clock) -> None:
    terminal = Terminal()
    _work(clock, 9.0, terminal, is_wanted=False)
    assert terminal.text == ""


@pytest.mark.usefixtures("no_rich")
def test_nothing_is_shown_when_standard_error_is_no_terminal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    terminal = Terminal()
    _work(clock, 9.0, terminal)
    assert terminal.text == ""


@pytest.mark.usefixtures("no_rich")
def test_an_unknown_total_shows_no_share(clock: Clock) -> None:
    terminal = Terminal()
    with redirect_stderr(terminal), Progress(None) as progress:
        clock.now += 2
        progress.advance(10, 100)
    assert terminal.text.split("\r")[1].rstrip() == "10 keys, 5/s"


def test_rich_draws_a_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    _work(clock, 4.0, terminal)
    assert "keys, 50/s" in terminal.text


def test_without_rich_there_is_no_rich_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert progress_module._rich_bar() is None
