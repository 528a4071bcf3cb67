"""Numbers as people read them."""

from __future__ import annotations

import pytest

from bloomstore.cli.support.numbers import bar, error, rough_count, size
from tests.cli.runner import Terminal


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
