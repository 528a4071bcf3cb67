"""Tables with and without rich, and numbers as people read them."""

from __future__ import annotations

import sys

import pytest

from bloomstore.cli.support.numbers import bar, error, rough_count, size
from bloomstore.cli.support.tables import Column, plain_lines, print_table
from tests.cli.runner import Terminal

COLUMNS = (Column("name", is_text=True, may_wrap=True), Column("bits/\nkey"))
ROWS = [["seen", "9.60"], ["[red]odd[/red]", "10.25"]]


def test_plain_tables_are_aligned_and_have_no_spaces_at_the_end() -> None:
    assert list(plain_lines(COLUMNS, ROWS)) == [
        "                bits/",
        "name              key",
        "seen             9.60",
        "[red]odd[/red]  10.25",
    ]


def test_a_terminal_gets_the_same_cells_from_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    print_table(COLUMNS, ROWS, terminal)
    lines = [line.rstrip() for line in terminal.text.splitlines()]
    assert lines == list(plain_lines(COLUMNS, ROWS))
    assert "rich" in sys.modules


def test_a_narrow_terminal_wraps_only_columns_that_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "14")
    monkeypatch.setenv("LINES", "25")
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    print_table(COLUMNS, ROWS, terminal)
    assert all(len(line) <= 14 for line in terminal.text.splitlines())
    assert "10.25" in terminal.text


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    terminal = Terminal()
    print_table(COLUMNS, ROWS, terminal)
    assert terminal.text.splitlines() == list(plain_lines(COLUMNS, ROWS))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (-0.0, "0"), (0.01, "0.01"), (0.00621, "0.00621"), (1e-4, "1e-4"), (1.0, "1"),
     (9.2119e-5, "9.21e-5"), (1.5e-18, "1.5e-18"), (0.17351, "0.174")],
)  # fmt: skip
def test_errors_have_three_digits(share: float, text: str) -> None:
    assert error(share) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (4096, "4 KiB"), (1_000_000, "977 KiB"), (1 << 30, "1 GiB"),
     (5 << 50, "5.12e+03 TiB")],
)  # fmt: skip
def test_sizes_have_a_unit(amount: int, text: str) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999_999, "999,999"), (1_000_000, "1 M"), (1_234_567_890, "1.235 G")],
)
def test_large_counts_are_rough(number: int, text: str) -> None:
    assert rough_count(number) == text


def test_bars_are_full_at_one_and_take_letters_the_output_knows() -> None:
    terminal = Terminal()
    assert bar(0.0, terminal) == "░" * 10
    assert bar(0.55, terminal) == "██████░░░░"
    assert bar(7.0, terminal) == "█" * 10
    terminal.reconfigure(encoding="latin-1")
    assert bar(0.5, terminal) == "#####....."
