"""One benchmark of two checkouts, in turns, as one table.

    python -m tools.compare.checkouts ../before . --turns 3 -- tools/bench.py --keys 1e6 --rounds 3
    python -m tools.compare.checkouts ../before . -- tools/bench_sql.py --databases sqlite

Each checkout runs its own copy of the benchmark with its own environment (`.venv`). The two take
turns, so that a slow minute of the machine meets both, and the median over the turns is compared.
A row is compared by its ratio to the peer that ran beside it; where there is no peer, by its own
figure. "change" is after / before, so that more than 1 is slower, also for rows whose ratio is a
gain. Rows that only one of the checkouts has are listed without a change.

Exit status: 0, 1 if a row is slower by more than --allowed, 2 if a benchmark fails to write JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Figures = dict[str, list[float]]


def main() -> int:
    arguments = parse()
    figures: dict[Path, Figures] = {arguments.before: {}, arguments.after: {}}
    for turn in range(arguments.turns):
        order = [arguments.before, arguments.after]
        for checkout in order if turn % 2 == 0 else reversed(order):
            print(f"turn {turn + 1}: {checkout}", file=sys.stderr, flush=True)
            for name, figure in run(checkout, arguments.command):
                figures[checkout].setdefault(name, []).append(figure)
    return print_table(figures[arguments.before], figures[arguments.after], arguments.allowed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--allowed", type=float, default=1.05, help="change that is still fine")
    parser.add_argument("command", nargs="+", help="benchmark and its arguments, behind --")
    return parser.parse_args()


def run(checkout: Path, command: list[str]) -> list[tuple[str, float]]:
    """The rows of one run as (name, figure); a smaller figure is always the better one."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        python = checkout.resolve() / ".venv" / "bin" / "python"
        subprocess.run(
            [python, checkout.resolve() / command[0], *command[1:], "--json", report],
            cwd=checkout,
            stdout=subprocess.DEVNULL,
            check=False,  # a missed goal is no failure here
        )
        if not report.exists():
            print(f"{checkout}: {command[0]} has written no report", file=sys.stderr)
            raise SystemExit(2)
        document = json.loads(report.read_text())
    rows = document if isinstance(document, list) else document["rows"]
    figures: list[tuple[str, float]] = []
    for row in rows:
        name, figure = _figure(row)
        same = sum(other.startswith(name) for other, _ in figures)
        figures.append((f"{name} ({same + 1})" if same else name, figure))
    return figures


def _figure(row: dict[str, Any]) -> tuple[str, float]:
    if "with_us" in row:  # tools/bench_sql.py
        is_gain = row["goal"].startswith(">=")
        return f"{row['database']}: {row['name']}", 1 / row["ratio"] if is_gain else row["ratio"]
    compared = row["ratio"] if row["ratio"] is not None else row["ours"]
    return f"{row['name']}, {row['detail']}", compared


def print_table(before: Figures, after: Figures, allowed: float) -> int:
    names = list(dict.fromkeys([*before, *after]))
    width = max(map(len, names))
    print(f"{'row':{width}}  {'before':>9}  {'after':>9}  {'change':>7}")
    slower = 0
    for name in names:
        was, now = before.get(name), after.get(name)
        cells = [f"{statistics.median(one):9.4g}" if one else f"{'-':>9}" for one in (was, now)]
        change = ""
        if was and now and statistics.median(was):
            ratio = statistics.median(now) / statistics.median(was)
            change = f"{ratio:7.3f}"
            if ratio > allowed:
                slower += 1
                change += "  SLOWER"
        print(f"{name:{width}}  {cells[0]}  {cells[1]}  {change}")
    print(f"{slower} rows slower by more than {allowed - 1:.0%}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
