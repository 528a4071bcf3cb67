"""Tables, numbers and JSON: with rich on a terminal, aligned plain text everywhere else.

In: columns and rows of text, out: lines. rich is imported only when a terminal is there to profit
from it, and nothing is lost without it: both forms have the same cells.
"""

from __future__ import annotations

import collections.abc as abc
import json
import math
from dataclasses import dataclass
from typing import Any, TextIO

GAP = "  "
_BAR_CELLS = 10


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
    """Prints a table in the form that suits `out`."""
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
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
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


def print_json(document: object, out: TextIO, *, indent: int | None = 2) -> None:
    """Prints a JSON document; numbers that JSON does not have become null."""
    print(json.dumps(_finite(document), indent=indent, allow_nan=False, default=str), file=out)


def count(number: int) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def rough_count(number: float) -> str:
    """Four digits of a large number, as 1.25 G."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M")):
        if number >= 10**power:
            return f"{number / 10**power:.4g} {letter}"
    return f"{number:,.0f}"


def size(number_bytes: int) -> str:
    """Bytes as people read them."""
    amount, units = float(number_bytes), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while amount >= 1000 and unit != "TiB":
        amount, unit = amount / 1024, next(units)
    return f"{number_bytes} B" if unit == "B" else f"{amount:.3g} {unit}"


def error(share: float) -> str:
    """An error, three digits, at most seven letters."""
    if share == 0.0 or share >= 0.001:
        return f"{share + 0.0:.3g}"  # -0.0 + 0.0 is 0.0
    digits, _, power = f"{share:.2e}".partition("e")
    return f"{float(digits):g}e{int(power)}"


def ratio(number: float | None) -> str:
    """Bits per key and the like; a dash where there is none."""
    return "-" if number is None else f"{number:.2f}"


def bar(share: float, out: TextIO) -> str:
    """A small bar; letters of ASCII where the output knows no others."""
    full, empty = "█░" if (out.encoding or "").lower().startswith("utf") else "#."
    cells = min(_BAR_CELLS, max(0, round(share * _BAR_CELLS)))
    return full * cells + empty * (_BAR_CELLS - cells)


def _one_line(text: str) -> str:
    """Text that cannot break a table, whatever is in a name."""
    return text if text.isprintable() else repr(text)[1:-1]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
