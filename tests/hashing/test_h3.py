"""Scheme H3: the paper's vectors, the frozen matrices, and tables that equal parities."""

from __future__ import annotations

import hashlib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.hashing import h3

KEYS = st.integers(0, 2**64 - 1)
HASHES = st.integers(0, h3.MATRICES - 1)
TWO_ROWS = [0b01101101, 0b11000100]


def test_the_papers_matrix_maps_69_to_2() -> None:
    assert h3.apply_matrix(TWO_ROWS, 8, 69) == 2


def test_a_third_row_maps_69_to_5_whose_shift_is_2() -> None:
    assert h3.apply_matrix([*TWO_ROWS, 0b00011110], 8, 69) == 5
    assert h3.apply_matrix(TWO_ROWS, 8, 69) == 5 >> 1


def test_a_key_wider_than_the_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 8 bits"):
        h3.apply_matrix(TWO_ROWS, 8, 256)


def test_the_matrices_never_change() -> None:
    rows = h3.matrices()
    packed = b"".join(row.to_bytes(8, "little") for matrix in rows for row in matrix)
    assert [f"{rows[u][0]:016x}" for u in range(3)] == FIRST_ROWS
    assert hashlib.sha256(packed).hexdigest() == ALL_ROWS


def test_there_are_64_matrices_of_48_rows() -> None:
    assert [len(matrix) for matrix in h3.matrices()] == [h3.ROWS] * h3.MATRICES


def test_row_t_of_any_two_matrices_differs() -> None:
    for left, right in combinations(h3.matrices(), 2):
        assert all(a != b for a, b in zip(left, right, strict=True))


def test_no_row_is_zero_or_occurs_twice_in_a_matrix() -> None:
    for matrix in h3.matrices():
        assert 0 not in matrix
        assert len(set(matrix)) == h3.ROWS


def test_the_rows_of_a_matrix_are_independent() -> None:
    """So all 2^48 addresses are reached, and equally often."""
    for matrix in h3.matrices():
        left = list(matrix)
        while left:
            pivot = left.pop()
            assert pivot, "a row is the sum of others"
            lowest = pivot & -pivot
            left = [row ^ pivot if row & lowest else row for row in left]


@given(key=KEYS, u=HASHES)
def test_tables_give_the_same_addresses_as_parities(key: int, u: int) -> None:
    expected = h3.apply_matrix(h3.matrices()[u], 64, key)
    assert h3.addresses48(np.array([key], dtype=np.uint64), u).tolist() == [expected]
    assert h3.address48_of_one(key, u) == expected


@pytest.mark.parametrize("count", [0, 2, 256, 257, 1000])
def test_many_keys_get_the_addresses_of_each(count: int) -> None:
    keys = np.random.default_rng(count).integers(0, 2**64, (count, 2), dtype=np.uint64)[:, 0]
    expected = [h3.address48_of_one(key, 7) for key in keys.tolist()]
    assert h3.addresses48(keys, 7).tolist() == expected


@given(key=KEYS, u=HASHES, rows=st.integers(0, h3.ROWS))
def test_shifting_an_address_equals_hashing_with_fewer_rows(key: int, u: int, rows: int) -> None:
    direct = h3.apply_matrix(h3.matrices()[u][:rows], 64, key)
    assert h3.address48_of_one(key, u) >> (h3.ROWS - rows) == direct


@given(left=KEYS, right=KEYS, u=HASHES)
def test_addresses_are_linear(left: int, right: int, u: int) -> None:
    a, b = h3.address48_of_one(left, u), h3.address48_of_one(right, u)
    assert h3.address48_of_one(left ^ right, u) == a ^ b


@given(key=KEYS, group=st.integers(0, 7))
def test_interleaved_tables_hold_eight_hashes_side_by_side(key: int, group: int) -> None:
    rows = h3.table_rows(group)
    values = np.frombuffer(key.to_bytes(8, "little"), dtype=np.uint8)
    found = np.bitwise_xor.reduce(rows[np.arange(8), values], axis=0)
    assert found.tolist() == [h3.address48_of_one(key, 8 * group + u) for u in range(8)]


def test_tables_are_read_only_made_once_and_lie_on_cache_lines() -> None:
    assert h3.tables(3) is h3.tables(3)
    assert h3.table_rows(0) is h3.table_rows(0)
    assert not h3.tables(3).flags.writeable
    assert not h3.table_rows(0).flags.writeable
    assert h3.table_rows(0).ctypes.data % 64 == 0


FIRST_ROWS = ["da89decd4f0ca4ee", "1fcaa088ea0fa6c9", "87e5291e0c6ae5d9"]
ALL_ROWS = "6dc3c2c29681993546aebd6e05f1b145379c67e15afdc9f8a9c99316aea39b75"
