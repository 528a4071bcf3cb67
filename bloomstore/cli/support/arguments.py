"""Arguments that several commands take: numbers as people write them, the store, `--json`.

In: text, out: a number, or an ArgumentTypeError that says what was expected (argparse prints it).

    1000000  1_000_000  1e6  1M     the same whole number;  k M G T are powers of 1000
    1Ki  4Mi                        powers of 1024
    0.001  1e-3  0.1%               the same error
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal, InvalidOperation
from pathlib import Path

from bloomstore.errors import BloomStoreError

_UNITS = {"": 1} | {
    letter + binary: (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgt", start=1)
    for binary in ("", "i")
}
_NUMBER = re.compile(r"([0-9._]+(?:e[+-]?[0-9]{1,3})?)\s*([a-z]{0,2})")
_MOST = 1 << 62  # the families take no more


class UsageError(BloomStoreError):
    """Options that contradict each other, or one that is missing."""


def whole_number(text: str) -> int:
    """A count of keys or bits."""
    match = _NUMBER.fullmatch(text.strip().lower())
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise ArgumentTypeError(_not_whole(text))
    try:
        value = Decimal(match[1]) * unit
    except InvalidOperation:
        raise ArgumentTypeError(_not_whole(text)) from None
    if value > _MOST or value != int(value):
        raise ArgumentTypeError(_not_whole(text))
    return int(value)


def error_share(text: str) -> float:
    """An error in 0..1, or in per cent."""
    bare = text.strip()
    try:
        return float(bare[:-1]) / 100 if bare.endswith("%") else float(bare)
    except ValueError:
        raise ArgumentTypeError(
            f"expected an error such as 0.001, 1e-3 or 0.1%, got {text!r}"
        ) from None


def real_number(text: str) -> float:
    """A factor; the families check its range."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a number, got {text!r}") from None


def seed_number(text: str) -> int:
    """A seed, decimal or 0x hexadecimal; the families check its range."""
    try:
        return int(text, 0)
    except ValueError:
        raise ArgumentTypeError(f"expected a number such as 7 or 0xBEEF, got {text!r}") from None


def speed_list(text: str) -> list[int]:
    """Expanding speeds, stage 0 first."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentTypeError(f"expected speeds such as 1,2,3, got {text!r}") from None


def add_store(parser: ArgumentParser) -> None:
    """The STORE argument."""
    parser.add_argument("store", type=Path, metavar="STORE", help="directory of the store")


def add_name(parser: ArgumentParser) -> None:
    """The NAME argument."""
    parser.add_argument("name", metavar="NAME", help="name of the filter")


def add_json(parser: ArgumentParser, text: str = "print JSON") -> None:
    """The --json option."""
    parser.add_argument("--json", action="store_true", help=text)


def _not_whole(text: str) -> str:
    return f"expected a whole number such as 5000, 1e6, 10M or 64Ki, got {text!r}"
