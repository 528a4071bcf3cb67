"""Numbers as people read them: counts, sizes, errors and bars."""

from __future__ import annotations

from typing import TextIO

_BAR_CELLS = 10


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
