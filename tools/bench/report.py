"""Rows as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.bench.measure import OURS, Row

HEADINGS = (
    "row",
    "keys",
    "ours",
    "unit",
    "best peer",
    "its",
    "ratio",
    "median",
    "kept",
    "goal",
    "",
)
PACKAGES = ("bloomstore", "abloom", "rbloom", "pybloomfiltermmap3", "fastbloom-rs", "pybloom-live",
            "lmdb", "numpy")  # fmt: skip


def cells(row: Row) -> list[str]:
    """One line of the table."""

    def shown(value: float | None, digits: str = ".2f") -> str:
        return "" if value is None else format(value, digits)

    def number(value: float | None) -> str:
        return shown(
            value, ".4f" if row.unit == "error" else ".1f" if (value or 0) < 100 else ".0f"
        )

    goal = "" if row.goal is None else f"<= {row.goal:g}"
    if row.goal is not None and row.goal_on == "ours":
        goal += f" {row.unit}"
    return [
        row.name, row.detail, number(row.ours), row.unit, row.peer, number(row.theirs),
        shown(row.ratio), shown(row.median_ratio), shown(row.persisting), goal, row.verdict,
    ]  # fmt: skip


def print_table(rows: list[Row]) -> None:
    """The table on standard output; rich draws it if it is there and a person is reading."""
    lines = [cells(row) for row in rows]
    try:
        if not sys.stdout.isatty():
            raise ImportError("plain text for files and pipes")
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _print_plain(lines)
    else:
        table = Table(*HEADINGS)
        for line in lines:
            style = "red" if line[-1] == "MISS" else None
            table.add_row(*line, style=style)
        Console().print(table)
    for row in rows:
        if row.note:
            print(f"{row.name}, {row.detail}: {row.note}")
    print("ratio: best round of ours / best round of the best peer; median: the same of medians;")
    print("kept: ratio to the best peer whose filter another process can use")


def _print_plain(lines: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(HEADINGS, *lines, strict=True)]
    for line in [list(HEADINGS), *lines]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def write_json(path: Path, arguments: dict[str, Any], **tables: Any) -> None:
    """Everything that was measured, with the versions that were compared."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    found = {"versions": versions, "machine": machine, "arguments": arguments, **tables}
    path.write_text(json.dumps(found, indent=1, default=str) + "\n")


def draw(path: Path, rows: list[Row]) -> None:
    """One bar per row: how many times faster than the best peer."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [row for row in rows if row.ratio is not None and row.peer]
    if not shown:
        return
    figure, axes = plt.subplots(figsize=(9, 1 + 0.3 * len(shown)), layout="constrained")
    places = range(len(shown))
    colours = ["tab:red" if row.verdict == "MISS" else "tab:blue" for row in shown]
    axes.barh(places, [row.ratio or 0 for row in shown], color=colours, height=0.7)
    for place, row in zip(places, shown, strict=True):
        if row.goal is not None and row.goal_on == "ratio":
            axes.plot([row.goal, row.goal], [place - 0.45, place + 0.45], color="black", lw=2)
        axes.text((row.ratio or 0) * 1.05, place, f"{row.ratio:.2f} of {row.peer}", va="center",
                  fontsize=7)  # fmt: skip
    axes.set_yticks(places, [f"{row.name}, {row.detail}" for row in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1.0, color="grey", lw=1)
    axes.set_xlim(right=max(10.0, *(4 * (row.ratio or 0) for row in shown)))
    axes.set_xlabel(f"time of {OURS} / time of the best peer (black: goal)")
    figure.savefig(path, dpi=150)
    plt.close(figure)
