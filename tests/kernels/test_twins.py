"""The compiled kernels equal the numpy kernels: same answers, same bits, same stops.

Axes: layout x scheme x size (GEOMETRIES), fill, limits, keys that occur again, one vector or many,
vectors beyond 2^32 bits. Not compared: the texts of errors, and time.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.kernels import numpy_twin
from bloomstore.layout.contract import Geometry
from tests.kernels.cases import (
    GEOMETRIES,
    PLENTY,
    empty_vector,
    geometry,
    half_full_vector,
    same,
    small_geometries,
    some_prints,
)

SEEDS = st.integers(0, 2**32 - 1)
LIMITS = st.one_of(st.integers(-3, 200), st.integers(0, 20_000), st.just(PLENTY))
LARGE = [
    geometry("plain", "spread", 5_000_000_017, 7),
    geometry("sliced", "spread", (1 << 30) + 1, 5),
    geometry("blocked", "spread", 512 * 9_999_999, 9),
    geometry("plain", "h3", 1 << 33, 7),
    geometry("sliced", "h3", 1 << 30, 5),
]


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_twins_agree_while_a_vector_fills(compiled: ModuleType, of: Geometry) -> None:
    left, right = empty_vector(of), empty_vector(of)
    asked = some_prints(1, 3000)
    for step in range(6):
        prints = some_prints(100 + step, 2000, distinct=1500)
        for limits in ((PLENTY, PLENTY), (of.hashes * 100, PLENTY), (PLENTY, 77), (0, 0)):
            expected = numpy_twin.preview(left, of, prints, *limits)
            assert same(compiled.preview(right, of, prints, *limits), expected)
        limits = (PLENTY, 900)
        expected = numpy_twin.insert(left, of, prints, *limits)
        assert same(compiled.insert(right, of, prints, *limits), expected)
        assert np.array_equal(left, right)
        found = numpy_twin.find([left], [of], asked)
        assert np.array_equal(compiled.find([right], [of], asked), found)
        assert compiled.count_bits(right) == numpy_twin.count_bits(left)
    numpy_twin.apply(left, of, asked)
    compiled.apply(right, of, asked)
    assert np.array_equal(left, right)


@given(of=small_geometries(), seed=SEEDS, keys=st.integers(0, 400), bits=LIMITS, left=LIMITS)
def test_twins_stop_at_the_same_key(
    compiled: ModuleType, of: Geometry, seed: int, keys: int, bits: int, left: int
) -> None:
    vectors = [half_full_vector(of, seed) & half_full_vector(of, seed + 1) for _ in range(2)]
    prints = some_prints(seed, keys, distinct=keys // 2 + 1)
    expected = numpy_twin.preview(vectors[0], of, prints, bits, left)
    assert same(compiled.preview(vectors[1], of, prints, bits, left), expected)
    assert same(numpy_twin.insert(vectors[0], of, prints, bits, left), expected)
    assert same(compiled.insert(vectors[1], of, prints, bits, left), expected)
    assert np.array_equal(vectors[0], vectors[1])


@given(
    chain=st.lists(small_geometries(), min_size=0, max_size=6),
    seed=SEEDS,
    keys=st.sampled_from([0, 1, 15, 16, 17, 255, 256, 257, 1000]),
)
def test_twins_find_the_same_in_many_vectors(
    compiled: ModuleType, chain: list[Geometry], seed: int, keys: int
) -> None:
    vectors = [half_full_vector(of, seed + i) for i, of in enumerate(chain)]
    prints = some_prints(seed, keys)
    for i, of in enumerate(chain):
        numpy_twin.apply(vectors[i], of, np.ascontiguousarray(prints[i::7]))
    found = numpy_twin.find(vectors, chain, prints)
    assert np.array_equal(compiled.find(vectors, chain, prints), found)
    assert found[: len(chain)].all()


@pytest.mark.parametrize("of", LARGE, ids=str)
def test_twins_agree_beyond_four_billion_bits(compiled: ModuleType, of: Geometry) -> None:
    left, right = empty_vector(of), empty_vector(of)  # zeros are given pages only when written
    prints = some_prints(5, 3000, distinct=2500)
    expected = numpy_twin.preview(left, of, prints, 9000, PLENTY)
    assert same(compiled.preview(right, of, prints, 9000, PLENTY), expected)
    assert same(numpy_twin.insert(left, of, prints, 9000, PLENTY), expected)
    assert same(compiled.insert(right, of, prints, 9000, PLENTY), expected)
    parts = [of.addresses(prints, j) for j in range(of.hashes)]
    touched = np.unique(np.concatenate(parts) >> np.uint64(3)).view(np.int64)
    assert touched.max() > 1 << 29  # past bit 2^32
    assert np.array_equal(left[touched], right[touched])
    assert compiled.count_bits(left) == compiled.count_bits(right) == expected[2]
    asked = np.concatenate([prints, some_prints(6, 3000)])
    found = numpy_twin.find([left], [of], asked)
    assert found[: expected[0]].all()
    assert not found[3000:].any()
    assert np.array_equal(compiled.find([right], [of], asked), found)


@given(size=st.integers(0, 300), start=st.integers(0, 8), seed=SEEDS)
def test_twins_count_the_same_bits_at_any_length_and_alignment(
    compiled: ModuleType, size: int, start: int, seed: int
) -> None:
    vector = np.random.default_rng(seed).integers(0, 256, size + start, dtype=np.uint8)[start:]
    expected = sum(int(byte).bit_count() for byte in vector)
    assert compiled.count_bits(vector) == numpy_twin.count_bits(vector) == expected


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_twins_agree_on_a_vector_that_starts_at_an_odd_address(
    compiled: ModuleType, of: Geometry
) -> None:
    memory = np.zeros(of.vector_bytes + 1, dtype=np.uint8)
    odd, even = memory[1:], empty_vector(of)
    prints = some_prints(9, 500)
    assert same(
        compiled.insert(odd, of, prints, PLENTY, PLENTY),
        numpy_twin.insert(even, of, prints, PLENTY, PLENTY),
    )
    assert np.array_equal(odd, even)
    assert memory[0] == 0
    asked = some_prints(10, 500)
    assert np.array_equal(compiled.find([odd], [of], asked), numpy_twin.find([even], [of], asked))


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
def test_twins_insert_any_number_of_keys(compiled: ModuleType, layout: str) -> None:
    of = geometry(layout, "spread", 512 * (200 if layout == "sliced" else 1500), 7)
    left, right = empty_vector(of), empty_vector(of)
    prints = some_prints(13, 3 * 65536 + 5, distinct=150_000)
    for limits in ((200_000, PLENTY), (PLENTY, 30_000), (PLENTY, PLENTY)):
        expected = numpy_twin.insert(left, of, prints, *limits)
        assert same(compiled.insert(right, of, prints, *limits), expected)
        assert np.array_equal(left, right)
    assert expected[0] == len(prints)


def test_twins_agree_on_the_largest_call(compiled: ModuleType) -> None:
    of = geometry("sliced", "spread", 100_003, 7)
    left, right = empty_vector(of), empty_vector(of)
    prints = some_prints(11, 65536, distinct=60_000)
    for limits in ((PLENTY, PLENTY), (250_000, PLENTY), (PLENTY, 40_000)):
        expected = numpy_twin.preview(left, of, prints, *limits)
        assert same(compiled.preview(right, of, prints, *limits), expected)


def test_sorting_addresses_beyond_48_bits_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    of = geometry("plain", "spread", 5000, 7)
    prints = some_prints(12, 1000, distinct=700)
    vector = half_full_vector(of, 3)
    expected = numpy_twin.preview(vector, of, prints, PLENTY, PLENTY)
    monkeypatch.setattr(numpy_twin, "_SORTABLE_ADDRESSES", 0)
    assert same(numpy_twin.preview(vector, of, prints, PLENTY, PLENTY), expected)


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_twins_mark_the_same_blocks(compiled: ModuleType, of: Geometry) -> None:
    for shift in (9, 12, 19, 60):
        left = np.zeros(((8 * of.vector_bytes - 1) >> shift) + 1, np.uint8)
        right = left.copy()
        for keys in (0, 1, 7, 3000):
            prints = some_prints(keys, keys)
            numpy_twin.mark(left, shift, of, prints)
            compiled.mark(right, shift, of, prints)
            assert np.array_equal(left, right)
            needed = {int(at) >> shift for j in range(of.hashes) for at in of.addresses(prints, j)}
            assert all(left[flag] for flag in needed)
