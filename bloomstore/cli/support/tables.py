"""Tables and lists of facts: with rich on a terminal, aligned plain text everywhere else.

In: columns and rows of text, out: lines. rich is imported only for a terminal, and nothing is lost
without it: both kinds of output have the same cells.

Not here: how a number is written (numbers.py), JSON (documents.py).
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import dataclass
from typing import TextIO

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column; the title may have several lines. Numbers go to the right, words to the left.

    `may_wrap`: takes several lines on a terminal that is too narrow for the table.
    """

    title: str
    is_text: bool = False
    may_wrap: bool = False


def print_table(
    columns: abc.Sequence[Column], rows: abc.Sequence[abc.Sequence[str]], out: TextIO
) -> None:
    """Prints a table, with rich if `out` is a terminal and rich is installed."""
    if not (out.isatty() and _print_with_rich(columns, rows, out)):
        for line in plain_lines(columns, rows):
            print(line, file=out)


def plain_lines(
    columns: abc.Sequence[Column], rows: abc.Sequence[abc.Sequence[str]]
) -> abc.Iterator[str]:
    """The table as aligned text, without a space at the end of a line."""
    titles = [column.title.split("\n") for column in columns]
    height = max(len(lines) for lines in titles)
    heads = [
        [([""] * (height - len(lines)) + lines)[line] for lines in titles] for line in range(height)
    ]
    cells = [*heads, *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        parts = (
            cell.ljust(width) if column.is_text else cell.rjust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        yield GAP.join(parts).rstrip()


def _print_with_rich(
    columns: abc.Sequence[Column], rows: abc.Sequence[abc.Sequence[str]], out: TextIO
) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="left" if column.is_text else "right",
            overflow="fold",
            no_wrap=not column.may_wrap,
        )
    for row in rows:
        table.add_row(*(Text(_one_line(cell)) for cell in row))
    Console(file=out).print(table)
    return True


def print_facts(facts: abc.Iterable[tuple[str, str]], out: TextIO) -> None:
    """Prints names and values, one pair per line, aligned."""
    pairs = list(facts)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name.ljust(width)}{GAP}{_one_line(value)}".rstrip(), file=out)


def _one_line(text: str) -> str:
    """Text that cannot break a table, whatever is in a name."""
    return text if text.isprintable() else repr(text)[1:-1]
