"""The limits that the measurements of this folder are held to."""

from __future__ import annotations

import math

import pytest

from tests.support.chance import DOUBT, most, power, tail


@pytest.mark.parametrize("mean", [0.5, 5.0, 20.0, 400.0, 8000.0])
def test_the_limit_is_the_last_count_that_is_not_too_unlikely(mean: float) -> None:
    limit = most(mean)
    assert tail(limit + 1, mean) < DOUBT <= tail(limit, mean)


def test_the_tail_is_that_of_the_poisson_distribution() -> None:
    assert tail(1, 0.25) == pytest.approx(-math.expm1(-0.25), rel=1e-12)
    by_hand = 1.0 - sum(math.exp(-2.0) * 2.0**k / math.factorial(k) for k in range(6))
    assert tail(6, 2.0) == pytest.approx(by_hand, rel=1e-9)


def test_nothing_is_allowed_where_nothing_is_expected() -> None:
    assert most(0.0) == 0


@pytest.mark.parametrize(
    ("mean", "excess", "seen"),
    [(650.0, 1.3, 0.98), (1600.0, 1.3, 0.9999), (8000.0, 1.15, 0.9999), (20.0, 3.5, 0.99)],
)
def test_an_excess_is_seen_with_high_probability(mean: float, excess: float, seen: float) -> None:
    assert power(mean, excess) > seen
