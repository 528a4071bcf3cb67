"""Each twin does what the definitions say, one key at a time and many at once."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.layout.contract import Geometry
from tests.kernels.cases import (
    GEOMETRIES,
    PLENTY,
    add_one_by_one,
    empty_vector,
    geometry,
    half_full_vector,
    is_reported,
    same,
    small_geometries,
    some_prints,
)

SEEDS = st.integers(0, 2**32 - 1)
LIMITS = st.one_of(st.integers(-3, 200), st.integers(0, 5000), st.just(PLENTY))
SMALL = [of for of in GEOMETRIES if of.vector_bits < 100_000]


@given(of=small_geometries(), seed=SEEDS, keys=st.integers(0, 60), bits=LIMITS, left=LIMITS)
def test_insert_is_adding_one_key_after_the_other(
    twin: ModuleType, of: Geometry, seed: int, keys: int, bits: int, left: int
) -> None:
    expected_vector = half_full_vector(of, seed) & half_full_vector(of, seed + 1)
    vector = expected_vector.copy()
    prints = some_prints(seed, keys, distinct=keys // 2 + 1)
    expected = add_one_by_one(expected_vector, of, prints, bits, left)
    assert same(twin.insert(vector, of, prints, bits, left), expected)
    assert np.array_equal(vector, expected_vector)


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_insert_is_preview_and_then_apply(twin: ModuleType, of: Geometry) -> None:
    inserted, applied = half_full_vector(of, 1), half_full_vector(of, 1)
    inserted &= half_full_vector(of, 2)
    applied &= half_full_vector(of, 2)
    prints = some_prints(3, 1000, distinct=800)
    limits = (of.hashes * 200, 300)
    planned = twin.preview(applied, of, prints, *limits)
    assert same(twin.insert(inserted, of, prints, *limits), planned)
    taken, new, bits = planned
    before = twin.count_bits(applied)
    twin.apply(applied, of, prints[:taken][new])
    assert np.array_equal(inserted, applied)
    assert twin.count_bits(applied) == before + bits


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_a_batch_equals_single_calls(twin: ModuleType, of: Geometry) -> None:
    many, single = empty_vector(of), empty_vector(of)
    prints = some_prints(4, 300, distinct=250)
    _, new, bits = twin.insert(many, of, prints, PLENTY, PLENTY)
    parts = [twin.insert(single, of, prints[i : i + 1], PLENTY, PLENTY) for i in range(300)]
    assert np.array_equal(many, single)
    assert new.tolist() == [bool(part[1][0]) for part in parts]
    assert bits == sum(part[2] for part in parts)
    asked = some_prints(5, 300)
    singly = [bool(twin.find([many], [of], asked[i : i + 1])[0]) for i in range(300)]
    assert twin.find([many], [of], asked).tolist() == singly


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_every_added_key_is_found(twin: ModuleType, of: Geometry) -> None:
    vector = empty_vector(of)
    prints = some_prints(6, 5000)
    taken, _, bits = twin.insert(vector, of, prints[:2500], of.vector_bits // 2, PLENTY)
    assert twin.find([vector], [of], prints[:taken]).all()
    assert twin.count_bits(vector) == bits <= of.vector_bits // 2
    twin.apply(vector, of, prints[2500:])
    assert twin.find([vector], [of], prints[2500:]).all()


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_apply_sets_the_bits_at_the_addresses_and_no_others(twin: ModuleType, of: Geometry) -> None:
    vector = empty_vector(of)
    prints = some_prints(7, 50)
    twin.apply(vector, of, prints)
    bits = np.flatnonzero(np.unpackbits(vector, bitorder="little"))
    rows = prints.astype("<u8")
    expected = {a for row in rows for a in of.addresses_of_one(row.tobytes())}
    assert bits.tolist() == sorted(expected)


@pytest.mark.parametrize("of", SMALL, ids=str)
def test_find_reports_a_key_exactly_when_all_its_bits_are_set(
    twin: ModuleType, of: Geometry
) -> None:
    vector = half_full_vector(of, 8) | half_full_vector(of, 9)
    prints = some_prints(10, 300)
    twin.apply(vector, of, np.ascontiguousarray(prints[::5]))
    assert twin.find([vector], [of], prints).tolist() == is_reported(vector, of, prints)


@pytest.mark.parametrize("layout", ["plain", "sliced"])
def test_shift_query_equals_direct_hashing_of_each_vector(twin: ModuleType, layout: str) -> None:
    """H3 addresses of many sizes come from one computation; each alone gives the same."""
    chain = [geometry(layout, "h3", 1 << bits, 7) for bits in (13, 8, 11, 0, 16, 10)]
    chain += [geometry(layout, "h3", 1 << 9, hashes) for hashes in (1, 8, 9, 20)]
    vectors = [half_full_vector(of, 20 + i) for i, of in enumerate(chain)]
    prints = some_prints(11, 700)
    for i, of in enumerate(chain):
        twin.apply(vectors[i], of, np.ascontiguousarray(prints[i::31]))
    each = [twin.find([v], [of], prints) for v, of in zip(vectors, chain, strict=True)]
    for answers, vector, of in zip(each, vectors, chain, strict=True):
        assert answers.tolist() == is_reported(vector, of, prints)
    together = twin.find(vectors[1:3] + vectors[4:], chain[1:3] + chain[4:], prints)
    assert np.array_equal(together, np.any(each[1:3] + each[4:], axis=0))


def test_keys_of_any_vector_are_found_whatever_the_layouts(twin: ModuleType) -> None:
    chain = [of for of in GEOMETRIES if of.vector_bits > 10_000]
    vectors = [empty_vector(of) for of in chain]
    parts = [some_prints(40 + i, 100) for i in range(len(chain))]
    for vector, of, part in zip(vectors, chain, parts, strict=True):
        twin.apply(vector, of, part)
    found = twin.find(vectors, chain, np.concatenate(parts))
    assert found.all()
    strangers = twin.find(vectors, chain, some_prints(99, 1000))
    assert strangers.mean() < 0.2


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_adding_known_keys_costs_nothing_and_never_stops(twin: ModuleType, of: Geometry) -> None:
    vector = empty_vector(of)
    prints = some_prints(12, 400)
    twin.apply(vector, of, prints)
    for call in (twin.preview, twin.insert):
        taken, new, bits = call(vector, of, prints, 0, 0)
        assert (taken, bits) == (400, 0)
        assert not new.any()


def test_a_key_that_occurs_again_in_a_call_is_not_new(twin: ModuleType) -> None:
    of = geometry("sliced", "spread", 10_007, 7)
    one = some_prints(13, 1)
    again = np.repeat(one, 5, axis=0)
    for call in (twin.preview, twin.insert):
        taken, new, bits = call(empty_vector(of), of, again, 7, 1)
        assert (taken, new.tolist(), bits) == (5, [True] + [False] * 4, 7)


@pytest.mark.parametrize(
    ("bits_left", "keys_left", "taken", "why"),
    [
        (7 * 3, PLENTY, 3, "the third key uses the last bits"),
        (7 * 3 - 1, PLENTY, 2, "the third key might need one bit too many"),
        (PLENTY, 3, 3, "three keys are left"),
        (PLENTY, 0, 0, "no key is left"),
        (6, PLENTY, 0, "not even one key is sure to fit"),
        (-5, PLENTY, 0, "more bits than allowed are set already"),
        (PLENTY, -5, 0, "more keys than allowed are there already"),
        (10**40, 10**40, 4, "limits may exceed 64 bits"),
        (-(10**40), 10**40, 0, "in both directions"),
    ],
)
def test_insert_stops_before_the_first_new_key_that_may_not_fit(
    twin: ModuleType, bits_left: int, keys_left: int, taken: int, why: str
) -> None:
    of = geometry("sliced", "spread", 1_000_003, 7)  # four keys do not share a bit here
    prints = some_prints(14, 4)
    for call in (twin.preview, twin.insert):
        found, new, bits = call(empty_vector(of), of, prints, bits_left, keys_left)
        assert (found, len(new), bits) == (taken, taken, 7 * taken), why


def test_preview_stops_alike_with_few_keys_in_a_large_vector(twin: ModuleType) -> None:
    """Few keys in a large vector are remembered by address, not in a copy of the vector."""
    of = geometry("plain", "spread", 50_000_000, 7)
    vector = empty_vector(of)
    prints = some_prints(15, 200, distinct=120)
    for bits_left in (PLENTY, 500, 70, 6):
        expected = twin.preview(vector, of, prints, bits_left, PLENTY)
        assert same(twin.insert(vector.copy(), of, prints, bits_left, PLENTY), expected)


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_find_preview_and_count_leave_a_read_only_vector_alone(
    twin: ModuleType, of: Geometry
) -> None:
    vector = half_full_vector(of, 16)
    kept = vector.copy()
    vector.setflags(write=False)
    prints = some_prints(17, 1000)
    twin.find([vector], [of], prints)
    twin.preview(vector, of, prints, PLENTY, PLENTY)
    twin.count_bits(vector)
    assert np.array_equal(vector, kept)


def test_error_rate_is_what_the_fill_promises(twin: ModuleType) -> None:
    for of in (geometry("sliced", "spread", 14_427, 7), geometry("sliced", "h3", 1 << 14, 7)):
        vector = empty_vector(of)
        twin.insert(vector, of, some_prints(18, 20_000), of.vector_bits // 2, PLENTY)
        error = twin.find([vector], [of], some_prints(19, 200_000)).mean()
        assert 0.9 * 2**-7 < error < 1.1 * 2**-7
