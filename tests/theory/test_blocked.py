"""Blocked vectors: exact small cases, simulations at stated confidence, and limits of size."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bloomstore.layout.contract import LINE_BITS as LINE_BITS_OF_LAYOUT
from bloomstore.theory.blocked import (
    LINE_BITS,
    blocked_error,
    blocked_error_at_fill,
    blocked_fill,
    blocked_keys_at_fill,
    blocked_standard_error,
    blocked_variance,
    distinct_keys_blocked,
    line_error,
)
from bloomstore.theory.vector import plain_fill, plain_variance

hashes = st.integers(1, 64)
some_blocks = st.one_of(st.integers(1, 20), st.integers(1, 1 << 39))


def exact_block_error(k: int, load: int) -> Fraction:
    """Return E[(X/512)^k] by inclusion and exclusion, in whole fractions.

    (X/512)^k is the chance that k probes meet set cells only. They meet j distinct cells in
    S(k, j) 512!/(512-j)! of 512^k ways, and j given cells are all set with the alternating sum.
    """
    b = LINE_BITS
    stirling = [1] + [0] * k
    for _ in range(k):
        stirling = [0] + [j * stirling[j] + stirling[j - 1] for j in range(1, k + 1)]
    throws = load * k
    missed = [(b - i) ** throws for i in range(k + 1)]  # ways to miss i given cells
    ways = 0
    for j in range(1, k + 1):
        all_set = sum((-1) ** i * math.comb(j, i) * missed[i] for i in range(j + 1))
        ways += stirling[j] * math.perm(b, j) * all_set
    return Fraction(ways, b ** (k + throws))


def simulate(lines: int, k: int, n: int, repeats: int, seed: int) -> NDArray[np.int64]:
    """Return the set bits of each line of `repeats` vectors of n keys."""
    random = np.random.default_rng(seed)
    found = np.empty((repeats, lines), np.int64)
    for repeat in range(repeats):
        cells = np.zeros((lines, LINE_BITS), bool)
        place = random.integers(0, lines, n)
        cells[np.repeat(place, k), random.integers(0, LINE_BITS, n * k)] = True
        found[repeat] = cells.sum(axis=1)
    return found


# One line -------------------------------------------------------------------------


def test_block_is_a_cache_line() -> None:
    assert LINE_BITS == LINE_BITS_OF_LAYOUT


def test_error_of_one_key_of_two_hashes_is_the_two_cases_by_hand() -> None:
    by_hand = Fraction(1, 512) * Fraction(1, 512) ** 2 + Fraction(511, 512) * Fraction(2, 512) ** 2
    assert line_error(2, 1) == pytest.approx(float(by_hand), rel=1e-13)
    assert exact_block_error(2, 1) == by_hand


@pytest.mark.parametrize(
    ("k", "load"), [(1, 1), (1, 7), (3, 2), (5, 20), (7, 50), (7, 120), (10, 35), (20, 3), (64, 1)]
)
def test_block_error_equals_exact_fractions(k: int, load: int) -> None:
    assert line_error(k, load) == pytest.approx(float(exact_block_error(k, load)), rel=1e-11)


@pytest.mark.parametrize("k", [1, 7, 64])
def test_block_error_rises_from_zero_to_one_without_a_step_back(k: int) -> None:
    errors = [line_error(k, load) for load in range(25_000 // k)]
    assert errors[0] == 0.0
    assert all(before <= after for before, after in pairwise(errors))
    assert errors[-1] == 1.0


def test_block_error_beyond_the_table_is_as_close_as_it_says() -> None:
    for k, load in [(7, 1171), (64, 129), (33, 250)]:
        assert k * load >= 8192
        exact = float(exact_block_error(k, load))
        assert exact - 3e-11 <= line_error(k, load) <= exact


# Whole vectors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "k", "n", "repeats"),
    [
        (1, 2, 16, 20_000),
        (1, 7, 50, 20_000),
        (1, 1, 300, 5_000),
        (2, 8, 90, 10_000),
        (3, 6, 16, 20_000),
        (3, 6, 160, 10_000),
        (3, 10, 100, 10_000),
        (20, 6, 1_000, 3_000),
        (195, 9, 6_400, 400),
        (1_940, 6, 100_000, 40),
        (3_040, 9, 100_000, 40),
    ],
)
def test_blocked_formulas_agree_with_simulated_vectors(
    lines: int, k: int, n: int, repeats: int
) -> None:
    # Error, fill and variance each within 4.5 standard errors: one false alarm in 4000 runs.
    set_bits = simulate(lines, k, n, repeats, seed=1000 * lines + k)
    errors = ((set_bits / LINE_BITS) ** k).mean(axis=1)
    spread = errors.std(ddof=1) / math.sqrt(repeats)
    assert abs(errors.mean() - blocked_error(lines, k, n)) < 4.5 * spread
    totals = set_bits.sum(axis=1)
    spread = totals.std(ddof=1) / math.sqrt(repeats)
    expected = LINE_BITS * lines * blocked_fill(lines, k, n)
    assert abs(totals.mean() - expected) < 4.5 * spread
    variance = blocked_variance(lines, k, n)
    assert abs(totals.var(ddof=1) / variance - 1) < 4.5 * math.sqrt(2 / (repeats - 1)) * 1.2


def test_half_full_blocks_are_worse_than_plain_by_the_factors_of_the_module_head() -> None:
    assert blocked_error_at_fill(10**6, 7, 0.5) * 2**7 == pytest.approx(1.22, abs=0.005)
    assert blocked_error_at_fill(10**6, 10, 0.5) * 2**10 == pytest.approx(1.73, abs=0.005)


def test_binomial_mixture_equals_exact_fractions_in_three_blocks() -> None:
    k, n, lines = 3, 6, 3
    exact = sum(
        math.comb(n, load)
        * Fraction(1, lines) ** load
        * Fraction(lines - 1, lines) ** (n - load)
        * exact_block_error(k, load)
        for load in range(n + 1)
    )
    assert blocked_error(lines, k, n) == pytest.approx(float(exact), rel=1e-12)


def test_mixture_of_many_blocks_approaches_the_poisson_law() -> None:
    k, mean = 7, 50.0
    poisson = math.fsum(
        math.exp(load * math.log(mean) - mean - math.lgamma(load + 1)) * line_error(k, load)
        for load in range(300)
    )
    for lines in (1 << 24, 1 << 34):
        assert blocked_error(lines, k, mean * lines) == pytest.approx(poisson, rel=1e-6)
    assert blocked_error(1 << 39, k, 50 << 39) == pytest.approx(poisson, rel=1e-9)


@pytest.mark.parametrize("lines", [1, 2, 3, 1000, 1 << 39])
def test_extreme_numbers_of_keys_give_errors_between_zero_and_one(lines: int) -> None:
    assert blocked_error(lines, 7, 0) == 0.0
    errors = [blocked_error(lines, 7, 10**power) for power in range(13)]
    assert errors == sorted(errors)
    assert errors[0] > 0.0
    assert errors[-1] <= 1.0
    if lines <= 1000:
        assert errors[-1] == 1.0


def test_one_block_is_a_plain_vector_of_512_bits() -> None:
    assert blocked_fill(1, 7, 50) == pytest.approx(plain_fill(512, 7, 50))
    assert blocked_variance(1, 7, 50) == pytest.approx(plain_variance(512, 7, 50))
    assert blocked_error(1, 7, 50) == line_error(7, 50)


@given(lines=some_blocks, k=hashes, p=st.floats(0.0001, 0.95))
def test_keys_at_fill_and_distinct_keys_are_inverses_of_fill(lines: int, k: int, p: float) -> None:
    n = blocked_keys_at_fill(lines, k, p)
    assert blocked_fill(lines, k, n) == pytest.approx(p, rel=1e-10)
    assert distinct_keys_blocked(lines, k, p * LINE_BITS * lines) == pytest.approx(n, rel=1e-9)


def test_distinct_keys_has_no_bound_when_every_bit_is_set() -> None:
    assert distinct_keys_blocked(3, 7, 3 * LINE_BITS) == math.inf
    assert blocked_error_at_fill(3, 7, 1.0) == 1.0


@given(lines=some_blocks, k=hashes, load=st.floats(0.0, 100.0), more=st.floats(0.0, 10.0))
def test_error_never_falls_with_more_keys_or_fewer_blocks(
    lines: int, k: int, load: float, more: float
) -> None:
    n = load * lines
    error = blocked_error(lines, k, n)
    assert error <= blocked_error(lines, k, n + more * lines) * (1 + 1e-12)
    assert blocked_error(lines + 1, k, n) <= error * (1 + 1e-12)


@given(lines=some_blocks, k=hashes, load=st.integers(1, 100))
def test_blocked_error_is_never_below_that_of_a_plain_vector_of_equal_fill(
    lines: int, k: int, load: int
) -> None:
    n = load * lines
    assert blocked_error(lines, k, n) >= blocked_fill(lines, k, n) ** k * (1 - 1e-10)


@given(lines=some_blocks, k=hashes, load=st.floats(0.0, 200.0))
def test_variance_is_never_negative(lines: int, k: int, load: float) -> None:
    assert blocked_variance(lines, k, load * lines) >= 0.0


def test_standard_error_agrees_with_simulation() -> None:
    lines, k, n, repeats = 8, 6, 400, 4000
    totals = simulate(lines, k, n, repeats, seed=5).sum(axis=1)
    estimates = [distinct_keys_blocked(lines, k, float(x)) for x in totals]
    # Known to 1.1 %, taken 4 times.
    assert np.std(estimates) == pytest.approx(blocked_standard_error(lines, k, n), rel=0.045)
    assert blocked_standard_error(lines, k, 0) == 0.0
    assert blocked_standard_error(1, k, 10**6) == math.inf
