"""Lookups straight from keys equal lookups of their fingerprints, in both twins."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomstore.kernels import numpy_twin
from bloomstore.keys import fingerprints
from bloomstore.layout.contract import Geometry
from tests.kernels.cases import (
    GEOMETRIES,
    empty_vector,
    geometry,
    half_full_vector,
    small_geometries,
)

SEEDS = st.integers(0, 2**32 - 1)
KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"])), st.binary()
)
BLOCKED = geometry("blocked", "spread", 512 * 333, 8)


def asked(twin: ModuleType, vectors: list[Any], of: list[Geometry], keys: Any, seed: int) -> Any:
    found = np.zeros(len(keys), np.bool_)
    assert twin.find_keys(vectors, of, keys, seed, found) == len(keys)
    return found


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 5000])
def test_integers_are_found_like_their_fingerprints(
    twin: ModuleType, of: Geometry, count: int
) -> None:
    keys = np.random.default_rng(count).integers(-(2**63), 2**63, count, dtype=np.int64)
    vector = half_full_vector(of, 1)
    numpy_twin.apply(vector, of, fingerprints(keys[::3]))
    expected = numpy_twin.find([vector], [of], fingerprints(keys))
    assert np.array_equal(asked(twin, [vector], [of], keys, 0), expected)
    assert expected[::3].all()


@pytest.mark.parametrize("present", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("hashes", [1, 2, 3, 4, 6, 7, 8, 10, 11, 15, 64])
def test_a_blocked_vector_is_asked_for_all_hashes(
    compiled: ModuleType, hashes: int, present: float
) -> None:
    of = geometry("blocked", "spread", 512 * 500, hashes)
    keys = np.random.default_rng(hashes).integers(0, 2**62, 20_000, dtype=np.int64)
    prints = fingerprints(keys)
    vector = half_full_vector(of, 2)
    numpy_twin.apply(vector, of, prints[: int(present * len(keys))])
    order = np.random.default_rng(1).permutation(len(keys))
    expected = numpy_twin.find([vector], [of], prints[order])
    assert np.array_equal(compiled.find([vector], [of], prints[order]), expected)
    assert np.array_equal(asked(compiled, [vector], [of], keys[order], 0), expected)
    assert np.array_equal(asked(compiled, [vector], [of], keys[order].tolist(), 0), expected)


@given(
    chain=st.lists(small_geometries(), max_size=4),
    keys=st.lists(KEYS, max_size=60),
    seed=SEEDS,
)
def test_a_list_is_found_like_its_fingerprints(
    compiled: ModuleType, chain: list[Geometry], keys: list[Any], seed: int
) -> None:
    vectors = [half_full_vector(of, seed + i) for i, of in enumerate(chain)]
    prints = fingerprints(keys, seed)
    for i, of in enumerate(chain):
        numpy_twin.apply(vectors[i], of, np.ascontiguousarray(prints[i::7]))
    expected = numpy_twin.find(vectors, chain, prints)
    assert np.array_equal(asked(compiled, vectors, chain, keys, seed), expected)


@pytest.mark.parametrize("place", [0, 1, 4095, 4096, 9999])
def test_a_list_stops_before_a_key_of_another_kind(compiled: ModuleType, place: int) -> None:
    keys: list[Any] = list(range(10_000))
    vector = half_full_vector(BLOCKED, 3)
    expected = asked(compiled, [vector], [BLOCKED], list(keys), 0)
    keys[place] = 0.5
    found = np.zeros(len(keys), np.bool_)
    done = compiled.find_keys([vector], [BLOCKED], keys, 0, found)
    assert done <= place
    assert np.array_equal(found[:done], expected[:done])
    assert not found[done:].any()


def test_the_numpy_twin_leaves_every_list_to_the_caller() -> None:
    found = np.zeros(1, np.bool_)
    assert numpy_twin.find_keys([empty_vector(BLOCKED)], [BLOCKED], ["a"], 0, found) == 0


@pytest.mark.parametrize(
    ("keys", "found", "message"),
    [
        (np.zeros(3, np.int64), np.zeros(2, np.bool_), "have 3 entries"),
        (np.zeros(3, np.int64), np.zeros((3, 1), np.bool_), "have 3 entries"),
        (np.zeros(3, np.int64), np.zeros(3, np.uint8), "of type bool, got uint8"),
        (np.zeros(3, np.int64), np.zeros(6, np.bool_)[::2], "C-contiguous"),
        (np.zeros(3, np.int64), [False] * 3, "numpy array, got list"),
        (np.zeros(3, np.int32), np.zeros(3, np.bool_), "of type int64, got int32"),
        (np.zeros(6, np.int64)[::2], np.zeros(3, np.bool_), "C-contiguous"),
        ((1, 2, 3), np.zeros(3, np.bool_), "numpy array, got tuple"),
    ],
    ids=range(8),
)
def test_wrong_arguments_are_refused(twin: ModuleType, keys: Any, found: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        twin.find_keys([empty_vector(BLOCKED)], [BLOCKED], keys, 0, found)
    with pytest.raises(ValueError, match="1 vectors, but 0 geometries"):
        twin.find_keys([empty_vector(BLOCKED)], [], keys, 0, found)


def test_answers_that_cannot_be_written_are_refused(twin: ModuleType) -> None:
    found = np.zeros(3, np.bool_)
    found.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        twin.find_keys([empty_vector(BLOCKED)], [BLOCKED], np.zeros(3, np.int64), 0, found)


@given(values=st.lists(st.sampled_from([1, -(2**70), True, 1.0, "1", b"1", None]), max_size=8))
def test_exact_types_are_told_apart(twin: ModuleType, values: list[Any]) -> None:
    for kind in (int, bool, float, str):
        assert twin.are_all(values, kind) is all(type(value) is kind for value in values)


@given(
    values=st.lists(st.sampled_from([0, 1, -1, 2**31, -(2**63), 2**63, 2**64, True, 1.0, "1"])),
    bits=st.sampled_from([1, 2, 32, 64, 65]),
    is_signed=st.booleans(),
)
def test_integers_of_so_many_bits(
    twin: ModuleType, values: list[Any], bits: int, is_signed: bool
) -> None:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    fit = all(type(value) is int and least <= value <= most for value in values)
    assert twin.are_integers(values, least, most) is fit
