"""Single plain and sliced vectors: the numbers of the documents, inverses, digits at any size."""

# ruff: noqa: N803, N806 - M, M0 and P are the symbols of the formulas under test.

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.theory.vector import (
    capacity_for_error,
    distinct_keys_plain,
    distinct_keys_sliced,
    ideal_hashes,
    keys_at_fill_plain,
    keys_at_fill_sliced,
    optimal_bits,
    optimal_capacity,
    optimal_hashes,
    plain_error,
    plain_fill,
    plain_standard_error,
    plain_variance,
    rejection_probes,
    sliced_error,
    sliced_fill,
    sliced_standard_error,
    sliced_variance,
)

sizes = st.integers(2, 1 << 48)
hashes = st.integers(1, 64)
fills = st.floats(0.001, 0.95)
errors = st.floats(1e-18, 0.9)


# The documents ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("P", "k", "m", "n"),
    [
        (1e-3, 10, 26214, 18232),
        (1e-4, 14, 18724, 13674),
        (1e-5, 17, 15420, 10939),
        (1e-6, 20, 13107, 9116),
    ],
)
def test_32_kib_filter_has_the_numbers_of_sbf_table_1(P: float, k: int, m: int, n: int) -> None:
    M = 262_144
    assert optimal_hashes(P) == k
    assert M // k == m
    assert math.floor(optimal_capacity(M, P)) == n  # the table rounds down


@pytest.mark.parametrize(
    ("bits", "k", "error"),
    [(6, 4, 0.0561), (8, 6, 0.0215), (12, 8, 0.00314), (16, 11, 0.000458)],
)
def test_errors_agree_with_the_slides_to_their_last_digit(bits: int, k: int, error: float) -> None:
    n = 10**7  # so large that the approximation of the slides and the exact form agree
    unit = 10.0 ** (math.floor(math.log10(error)) - 2)
    found = plain_error(bits * n, k, n)
    # The slides cut some numbers and round others (.0216 and .000459 when rounded).
    assert abs(found - error) < unit
    assert {8: "0.0216", 16: "0.000459"}.get(bits, f"{error:.3g}") == f"{found:.3g}"


@pytest.mark.parametrize(
    ("P", "bits", "k"),
    [
        (0.1, 4.79, 4),
        (0.05, 6.24, 5),
        (0.01, 9.59, 7),
        (0.005, 11.03, 8),
        (0.001, 14.38, 10),
        (0.0005, 15.82, 11),
        (0.0001, 19.17, 14),
    ],
)
def test_bits_and_hashes_per_key_agree_with_the_notes(P: float, bits: float, k: int) -> None:
    assert round(math.ceil(optimal_bits(1000, P)) / 1000, 2) == bits
    assert optimal_hashes(P) == k


@pytest.mark.parametrize(
    ("bits", "k", "error"),
    [
        (5, 3, 0.0918),
        (7, 3, 0.0423),
        (10, 5, 0.0094),
        (12, 5, 0.0046),
        (15, 8, 0.0009),
        (16, 10, 0.0005),
        (20, 10, 0.0001),
    ],
)
def test_errors_of_whole_bits_per_key_agree_with_the_notes(bits: int, k: int, error: float) -> None:
    n = 10**7
    assert round(plain_error(bits * n, k, n), 4) == error


def test_one_key_in_15_bits_and_3_slices_gives_the_example_of_sbf_section_3() -> None:
    assert sliced_fill(5, 1) == pytest.approx(1 / 5)
    assert sliced_error(5, 3, 1) == pytest.approx(0.008)


def test_capacity_for_error_gives_the_examples_of_sfbf() -> None:
    assert math.floor(capacity_for_error(8, 2, 0.155)) == 2  # SFBF section 4.2
    assert capacity_for_error(1024, 6, 0.000935) == pytest.approx(64, rel=1e-3)


def test_half_full_vector_needs_two_probes_to_reject_as_in_survey_equation_3() -> None:
    assert rejection_probes(0.5) == 2.0
    assert rejection_probes(0.0) == 1.0
    assert rejection_probes(1.0) == math.inf


@given(p=st.floats(0.0, 0.999), k=hashes)
def test_rejection_probes_bound_the_finite_sum_of_survey_equation_3(p: float, k: int) -> None:
    assert sum(h * p ** (h - 1) * (1 - p) for h in range(1, k + 1)) <= rejection_probes(p) + 1e-9


@given(n=st.integers(1, 10**12), P=errors)
def test_half_filled_vector_of_optimal_bits_has_the_target_error(n: int, P: float) -> None:
    assert 0.5 ** ideal_hashes(P) == pytest.approx(P)
    assert optimal_capacity(optimal_bits(n, P), P) == pytest.approx(n)
    slice_bits = optimal_bits(n, P) / ideal_hashes(P)
    assert 1 - math.exp(-n / slice_bits) == pytest.approx(0.5)


# Inverses and monotony -------------------------------------------------------------


@given(m=sizes, k=hashes, p=fills)
def test_keys_at_fill_is_the_inverse_of_fill(m: int, k: int, p: float) -> None:
    assert sliced_fill(m, keys_at_fill_sliced(m, p)) == pytest.approx(p, rel=1e-12)
    assert plain_fill(m, k, keys_at_fill_plain(m, k, p)) == pytest.approx(p, rel=1e-12)


@given(m=sizes, k=hashes, share=fills)
def test_distinct_keys_is_the_inverse_of_expected_set_bits(m: int, k: int, share: float) -> None:
    n = share * m
    assert distinct_keys_sliced(m, m * sliced_fill(m, n)) == pytest.approx(n, rel=1e-9)
    assert distinct_keys_plain(m, k, m * plain_fill(m, k, n / k)) == pytest.approx(n / k, rel=1e-9)


@pytest.mark.parametrize("m", [1, 2, 512, 1 << 48])
def test_distinct_keys_has_no_bound_when_every_bit_is_set(m: int) -> None:
    assert distinct_keys_sliced(m, m) == math.inf
    assert distinct_keys_plain(m, 7, m) == math.inf
    assert distinct_keys_sliced(m, 0) == distinct_keys_plain(m, 7, 0) == 0.0


def test_one_set_bit_tells_of_one_key_in_the_largest_slice() -> None:
    assert distinct_keys_sliced(1 << 48, 1) == pytest.approx(1.0, rel=1e-12)
    assert distinct_keys_plain(1 << 48, 4, 4) == pytest.approx(1.0, rel=1e-12)


@given(m=sizes, k=hashes, n=st.integers(0, 1 << 48), more=st.integers(1, 1 << 40))
def test_fill_and_error_never_fall_with_more_keys_or_fewer_bits(
    m: int, k: int, n: int, more: int
) -> None:
    assert sliced_fill(m, n) <= sliced_fill(m, n + more)
    assert plain_fill(m, k, n) <= plain_fill(m, k, n + more)
    assert sliced_error(m + more, k, n) <= sliced_error(m, k, n)
    assert plain_error(m + more, k, n) <= plain_error(m, k, n)
    assert 0.0 <= plain_error(m, k, n) <= 1.0


@given(M=st.integers(1000, 1 << 48), k=hashes, f0=st.floats(1e-12, 0.5))
def test_capacity_for_error_is_the_inverse_of_plain_error(M: int, k: int, f0: float) -> None:
    assert plain_error(M, k, capacity_for_error(M, k, f0)) == pytest.approx(f0, rel=k * 2e-3)


def test_one_cell_is_full_after_one_key() -> None:
    assert sliced_fill(1, 0) == 0.0
    assert sliced_fill(1, 1) == plain_fill(1, 3, 1) == 1.0
    assert sliced_variance(1, 3, 5) == plain_variance(1, 3, 5) == 0.0


# Spread ----------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "throws"), [(2, 1), (2, 4), (3, 5), (5, 4), (6, 2)])
def test_variance_of_set_bits_equals_enumeration(cells: int, throws: int) -> None:
    counts = [len(set(places)) for places in product(range(cells), repeat=throws)]
    mean = Fraction(sum(counts), len(counts))
    variance = Fraction(sum(x * x for x in counts), len(counts)) - mean**2
    assert cells * sliced_fill(cells, throws) == pytest.approx(float(mean))
    assert sliced_variance(cells, 1, throws) == pytest.approx(float(variance), abs=1e-12)
    assert sliced_variance(cells, 3, throws) == pytest.approx(3 * float(variance), abs=1e-12)
    assert plain_variance(cells, throws, 1) == pytest.approx(float(variance), abs=1e-12)


@pytest.mark.parametrize("exponent", [20, 30, 40, 48])
def test_variance_keeps_its_digits_in_large_vectors(exponent: int) -> None:
    m = 1 << exponent
    t = 0.7  # keys per bit; the limit of the variance per bit is e^-t - (1 + t) e^-2t
    limit = math.exp(-t) - (1 + t) * math.exp(-2 * t)
    assert sliced_variance(m, 1, t * m) / m == pytest.approx(limit, rel=1e-5)


@given(m=sizes, k=hashes, n=st.integers(0, 1 << 49))
def test_variance_is_never_negative_nor_above_that_of_independent_bits(
    m: int, k: int, n: int
) -> None:
    empty = math.exp(n * math.log1p(-1 / m))  # not 1 - fill, which cancels in a full slice
    assert 0.0 <= sliced_variance(m, k, n) <= k * m * empty * (1 - empty) * (1 + 1e-9) + 1e-9


def test_standard_errors_agree_with_simulation() -> None:
    # 4000 vectors: the standard deviation of their estimates is known to 1.1 %, taken 4 times.
    random = np.random.default_rng(20)
    m, k, n, repeats = 400, 3, 280, 4000
    sliced, plain = [], []
    for _ in range(repeats):
        slices = random.integers(0, m, (k, n))
        set_bits = [np.unique(row).size for row in slices]
        sliced.append(distinct_keys_sliced(m, sum(set_bits) / k))
        anywhere = np.unique(random.integers(0, m * k, k * n)).size
        plain.append(distinct_keys_plain(m * k, k, anywhere))
    assert np.std(sliced) == pytest.approx(sliced_standard_error(m, k, n), rel=0.045)
    assert np.std(plain) == pytest.approx(plain_standard_error(m * k, k, n), rel=0.045)
    assert np.mean(sliced) == pytest.approx(n, abs=1.0)
    assert np.mean(plain) == pytest.approx(n, abs=1.0)


def test_standard_error_is_unbounded_when_every_bit_is_expected_to_be_set() -> None:
    assert sliced_standard_error(1, 1, 1) == math.inf
    assert sliced_standard_error(64, 2, 10**6) == plain_standard_error(64, 2, 10**6) == math.inf
    assert sliced_standard_error(64, 2, 0) == plain_standard_error(64, 2, 0) == 0.0


def test_plain_error_is_a_little_low_in_small_vectors() -> None:
    # Exact: after one key of 3 hashes 1, 2 or 3 of 15 bits are set (15, 630 and 2730 of 15^3).
    ways = {1: 15, 2: 15 * 14 * 3, 3: 15 * 14 * 13}
    exact = sum(Fraction(w, 15**3) * Fraction(x, 15) ** 3 for x, w in ways.items())
    assert plain_error(15, 3, 1) < float(exact) < 1.06 * plain_error(15, 3, 1)
