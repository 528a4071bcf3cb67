"""Flexible chains: the examples of the SFBF paper and the guards around arrival rates."""

# ruff: noqa: N803, N806 - M, M0 and P are the symbols of the formulas under test.

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.theory.flexible import (
    expanding_speed,
    flexible_error,
    load_factor,
    vector_bits,
    vector_capacity,
    vector_error,
)
from bloomstore.theory.vector import capacity_for_error, plain_error

rates = st.floats(1e-3, 1e9)


def test_three_vectors_take_the_keys_of_the_example_in_sfbf_section_4_2() -> None:
    n0 = math.floor(capacity_for_error(8, 2, 0.155))
    assert [vector_bits(8, speed) for speed in (1, 2, 3)] == [8, 16, 32]
    assert [vector_capacity(n0, speed) for speed in (1, 2, 3)] == [2, 4, 8]


def test_full_vector_of_the_sfbf_experiment_has_its_error() -> None:
    assert round(vector_error(1024, 6, 64), 6) == 0.000935


def test_error_after_extensions_is_sfbf_equation_3() -> None:
    full, last = vector_error(1024, 6, 64), vector_error(4096, 6, 100)
    assert flexible_error(1024, 6, 64, 3, 4096, 100) == pytest.approx(
        1 - (1 - full) ** 3 * (1 - last)
    )


def test_error_without_extensions_is_that_of_the_baseline() -> None:
    assert flexible_error(1024, 6, 64, 0, 1024, 64) == pytest.approx(vector_error(1024, 6, 64))
    assert flexible_error(1024, 6, 64, 0, 1024, 0) == 0.0


@given(speed=st.integers(1, 30), k=st.integers(1, 20))
def test_full_vectors_of_every_speed_have_one_load_and_one_error(speed: int, k: int) -> None:
    bits, keys = vector_bits(1024, speed), vector_capacity(64, speed)
    assert bits / keys == 1024 / 64
    assert vector_error(bits, k, keys) == vector_error(1024, k, 64)


@given(extensions=st.integers(0, 50), keys=st.integers(0, 64))
def test_error_grows_with_the_extensions(extensions: int, keys: int) -> None:
    before = flexible_error(1024, 6, 64, extensions, 1024, keys)
    assert before < flexible_error(1024, 6, 64, extensions + 1, 1024, keys)


@given(M=st.integers(1000, 1 << 40), share=st.floats(0.01, 0.1), k=st.integers(1, 12))
def test_vector_error_is_close_to_the_plain_error_and_not_above(
    M: int, share: float, k: int
) -> None:
    n = share * M
    exact = plain_error(M, k, n)
    assert exact * (1 - k * k / M) <= vector_error(M, k, n) <= exact * (1 + 1e-9)


@given(speeds=st.lists(st.integers(1, 8), min_size=1, max_size=10), last=st.floats(0.001, 1.0))
def test_load_factor_lies_within_the_bounds_of_sfbf_theorem_2(
    speeds: list[int], last: float
) -> None:
    M0, n0 = 1024, 64
    last_bits, last_keys = vector_bits(M0, speeds[-1]), last * vector_capacity(n0, speeds[-1])
    bits = sum(vector_bits(M0, speed) for speed in speeds)
    held = sum(vector_capacity(n0, speed) for speed in speeds[:-1]) + last_keys
    low, high = load_factor(M0, n0, last_bits, last_keys)
    assert low * (1 - 1e-12) <= bits / held <= high


def test_load_factor_has_no_upper_bound_while_the_last_vector_is_empty() -> None:
    assert load_factor(1024, 64, 2048, 0) == (16.0, math.inf)


@pytest.mark.parametrize(
    ("predicted", "first", "speed"),
    [(10, 10, 1), (11, 10, 2), (20, 10, 2), (21, 10, 3), (80, 10, 4), (5, 10, 1), (0.1, 10, 1)],
)
def test_expanding_speed_follows_sfbf_section_4_3(
    predicted: float, first: float, speed: int
) -> None:
    assert expanding_speed(predicted, first) == speed


@pytest.mark.parametrize("useless", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_rates_that_say_nothing_give_the_baseline_speed(useless: float) -> None:
    assert expanding_speed(useless, 10.0) == expanding_speed(10.0, useless) == 1


def test_rates_whose_quotient_overflows_still_give_a_speed() -> None:
    assert expanding_speed(1e308, 1e-308) > 2000


@given(predicted=rates, first=rates)
def test_vector_of_the_expanding_speed_covers_the_predicted_growth(
    predicted: float, first: float
) -> None:
    speed = expanding_speed(predicted, first)
    assert speed >= 1
    assert 2.0 ** (speed - 1) >= predicted / first * (1 - 1e-9)
