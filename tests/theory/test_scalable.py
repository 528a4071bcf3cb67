"""Scalable chains: the numbers of the SBF paper, its figures, and the promise for ever."""

# ruff: noqa: N803 - P is a symbol of the formulas under test.

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.theory.scalable import (
    average_space,
    best_tightening,
    compound_error,
    first_error,
    relative_space,
    space,
    stage_capacity,
    stage_error,
    stage_hashes,
    stage_slice_bits,
    stages_for_growth,
    totals,
)
from bloomstore.theory.vector import keys_at_fill_sliced, optimal_bits

tightenings = st.floats(0.05, 0.99)
targets = st.floats(1e-12, 0.5)


# The paper -------------------------------------------------------------------------


def test_eight_stages_hold_the_keys_and_bits_of_sbf_figure_1() -> None:
    found = totals(1e-6, 0.5, 2, 128, 8)
    assert math.floor(found.keys) == 22_624
    assert found.bits == 882_304
    assert round(found.ratio, 3) == 1.356


def test_growth_by_a_million_costs_what_sbf_figure_2_says() -> None:
    assert round(totals(1e-6, 0.5, 2, 128, 20).ratio, 3) == 1.957
    assert round(totals(1e-6, 0.5, 4, 128, 10).ratio, 3) == 1.488


def test_stages_have_one_slice_more_each_at_tightening_one_half() -> None:
    first = first_error(1e-6, 0.5)
    assert [stage_hashes(stage_error(first, 0.5, i)) for i in range(5)] == [21, 22, 23, 24, 25]


def test_first_error_of_sbf_section_4_is_the_share_of_stage_zero() -> None:
    assert first_error(1e-3, 0.85) == pytest.approx(1.5e-4)
    assert stage_error(1.5e-4, 0.85, 2) == pytest.approx(1.5e-4 * 0.85**2)


def test_static_growth_needs_far_more_space_than_doubling_as_in_figure_1() -> None:
    assert space(1e-6, 0.5, 2, 128, 22_624) == 882_304
    assert space(1e-6, 0.5, 1, 128, 22_624) > 5 * 882_304


def test_space_is_a_staircase_that_rises_with_the_first_key_of_a_stage() -> None:
    first = stage_capacity(128)
    assert space(1e-6, 0.5, 2, 128, 0) == space(1e-6, 0.5, 2, 128, first) == 128 * 21
    assert space(1e-6, 0.5, 2, 128, first + 1) == 128 * 21 + 256 * 22


@pytest.mark.parametrize(
    ("growth", "s", "stages"), [(1, 2, 1), (1023, 2, 10), (1024, 2, 11), (1e6, 2, 20), (1e6, 4, 11)]
)
def test_stages_for_growth_agree_with_sbf_figure_3(growth: float, s: float, stages: int) -> None:
    assert stages_for_growth(growth, s) == stages


def test_one_stage_per_multiple_is_needed_without_growth() -> None:
    assert stages_for_growth(100, 1) == 100


def test_full_stages_have_equal_ratio_in_figure_2_and_in_the_totals() -> None:
    assert relative_space(1e-6, 0.5, 2, 2**20 - 1) == pytest.approx(
        totals(1e-6, 0.5, 2, 128, 20).ratio
    )


def test_large_tightening_starts_dearer_and_ends_cheaper_as_in_figure_5() -> None:
    assert relative_space(1e-6, 0.9, 2, 1) > relative_space(1e-6, 0.5, 2, 1)
    assert relative_space(1e-6, 0.9, 2, 1e6) < relative_space(1e-6, 0.5, 2, 1e6)


@pytest.mark.parametrize("s", [math.sqrt(2), 2, 4])
def test_best_tightening_does_not_depend_on_the_target_as_sbf_section_4_2_says(s: float) -> None:
    for growth in (100, 10_000, 1e6):
        assert best_tightening(1e-3, s, growth) == best_tightening(1e-6, s, growth)


def test_best_tightening_is_where_sbf_figure_6_recommends_it() -> None:
    # "r around 0.8-0.9": growth 2 for small sets and 4 for large ones.
    assert 0.8 <= best_tightening(1e-6, 2, 100) <= 0.9
    assert 0.8 <= best_tightening(1e-6, 4, 1e5) <= 0.9


@pytest.mark.parametrize(("s", "growth"), [(2, 100), (2, 1e6), (4, 1e6)])
def test_recommended_tightening_takes_less_on_average_than_one_half(
    s: float, growth: float
) -> None:
    assert average_space(1e-6, 0.85, s, growth) < average_space(1e-6, 0.5, s, growth)


def test_average_space_of_one_stage_is_that_stage() -> None:
    assert average_space(1e-3, 0.5, 2, 1) == pytest.approx(
        -math.log2(5e-4) / optimal_bits(math.log(2), 1e-3)
    )


# Properties ------------------------------------------------------------------------


@given(P=targets, r=tightenings, stages=st.integers(1, 200))
def test_compound_error_stays_under_the_target_for_ever(P: float, r: float, stages: int) -> None:
    errors = [stage_error(first_error(P, r), r, i) for i in range(stages)]
    assert compound_error(errors) <= sum(errors) * (1 + 1e-12) <= P * (1 + 1e-9)


@given(errors=st.lists(st.floats(0.0, 1.0), max_size=20))
def test_compound_error_is_one_minus_the_product(errors: list[float]) -> None:
    assert compound_error(errors) == pytest.approx(1 - math.prod(1 - e for e in errors), abs=1e-12)


def test_tiny_errors_add_up_without_loss() -> None:
    assert compound_error([1e-18] * 10) == pytest.approx(1e-17, rel=1e-12)


@given(P=st.floats(1e-15, 0.9))
def test_half_full_stage_keeps_its_error(P: float) -> None:
    assert 0.5 ** stage_hashes(P) <= P
    assert stage_hashes(P) == 1 or 0.5 ** (stage_hashes(P) - 1) > P


@given(m0=st.integers(1, 1 << 20), s=st.floats(1.0, 4.0), i=st.integers(0, 12))
def test_slices_grow_by_the_factor_and_are_rounded_up(m0: int, s: float, i: int) -> None:
    assert 0 <= stage_slice_bits(m0, s, i) - m0 * s**i < 1 + 1e-9 * m0 * s**i


def test_whole_growth_is_exact_beyond_the_precision_of_floats() -> None:
    assert stage_slice_bits(3, 2, 60) == 3 << 60
    assert stage_slice_bits((1 << 60) + 1, 2.0, 1) == (1 << 61) + 2


@given(m=st.integers(2, 1 << 48), p=st.floats(0.1, 0.9))
def test_capacity_of_a_stage_is_high_by_less_than_its_share(m: int, p: float) -> None:
    exact = keys_at_fill_sliced(m, p)
    assert exact * (1 - 1e-12) <= stage_capacity(m, p) <= exact * (1 + 1 / m)


def test_capacity_of_a_stage_is_the_slice_times_ln_2() -> None:
    assert stage_capacity(1000) == pytest.approx(1000 * math.log(2))
