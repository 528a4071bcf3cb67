"""Scheme SPREAD: exact arithmetic, and positions that stay independent in small slices."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from bloomstore.hashing import spread

WORDS = st.integers(0, 2**64 - 1)
SIZES = st.one_of(
    st.integers(1, 2**48),
    st.integers(1, 1000),
    st.sampled_from([2**32 - 1, 2**32, 2**32 + 1, 2**48 - 1, 2**48]),
)


def array(*words: int) -> spread.Words:
    return np.array(words, dtype=np.uint64)


@given(word=WORDS, size=SIZES)
@example(word=2**64 - 1, size=2**32)
@example(word=2**64 - 1, size=2**48)
@example(word=2**32 - 1, size=2**48 - 1)
def test_multiply_high_is_exact_at_every_size(word: int, size: int) -> None:
    assert spread.multiply_high(array(word), size).tolist() == [word * size >> 64]


@given(word=WORDS)
def test_mix_wraps_at_64_bits(word: int) -> None:
    expected = (word ^ word >> 32) * 0x9E3779B97F4A7C15 % 2**64
    assert spread.mix(array(word)).tolist() == [expected]


@given(first=WORDS, second=WORDS, j=st.integers(0, 63), size=SIZES)
def test_one_key_and_many_keys_have_the_same_positions(
    first: int, second: int, j: int, size: int
) -> None:
    both = array(first), array(second)
    assert spread.positions(*both, j, size)[0] == spread.position_of_one(first, second, j, size)
    assert spread.positions_in_line(*both, j)[0] == spread.position_in_line_of_one(first, second, j)
    assert spread.lines(both[0], size)[0] == spread.line_of_one(first, size)


@given(first=WORDS, second=WORDS, j=st.integers(0, 63), size=SIZES)
def test_positions_lie_inside(first: int, second: int, j: int, size: int) -> None:
    assert 0 <= spread.position_of_one(first, second, j, size) < size
    assert 0 <= spread.position_in_line_of_one(first, second, j) < 512
    assert 0 <= spread.line_of_one(first, size) < size


def test_all_positions_of_a_small_slice_are_used_equally() -> None:
    rng = np.random.default_rng(1)
    prints = rng.integers(0, 2**64, (100_000, 2), dtype=np.uint64)
    for j in (0, 1, 6, 63):
        counts = np.bincount(
            spread.positions(prints[:, 0], prints[:, 1], j, 100).view(np.int64), minlength=100
        )
        # 1000 expected each, standard deviation 31.5: chi-squared has mean 99, deviation 14.
        assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 5 * 14


def test_error_of_a_tiny_sliced_vector_is_what_independent_positions_give() -> None:
    """The trap: with plain double hashing this came out at 6.9 times the theory."""
    hashes, slice_bits, keys = 14, 47, 32
    rng = np.random.default_rng(7)
    expected = found = 0.0
    for _ in range(60):
        added = rng.integers(0, 2**64, (keys, 2), dtype=np.uint64)
        asked = rng.integers(0, 2**64, (200_000, 2), dtype=np.uint64)
        chance = 1.0
        for j in range(hashes):
            bits = np.zeros(slice_bits, dtype=bool)
            bits[spread.positions(added[:, 0], added[:, 1], j, slice_bits)] = True
            asked = asked[bits[spread.positions(asked[:, 0], asked[:, 1], j, slice_bits)]]
            chance *= float(bits.mean())
        expected += 200_000 * chance
        found += len(asked)
    assert 0.85 < found / expected < 1.15  # about 1200 expected: 5 deviations
