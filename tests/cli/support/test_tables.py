"""Tables with and without rich."""

from __future__ import annotations

import sys

import pytest

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
