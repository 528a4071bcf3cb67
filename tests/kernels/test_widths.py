"""Registers of every width give the same: fingerprints, lookups of many keys and of one, adds."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bloomstore.kernels import numpy_twin
from bloomstore.keys import fingerprint, fingerprints
from bloomstore.keys.encoding import STR
from tests.kernels.cases import PLENTY, empty_vector, geometry, half_full_vector, same, some_prints

HASHES = [*range(1, 16), 64]
INTEGERS = st.integers(-(2**63), 2**63 - 1)
# Keys that the compiled twin hashes itself, and two that it leaves to the slow way.
KEYS = st.one_of(
    INTEGERS,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(st.characters(max_codepoint=127), max_size=70),
    st.binary(max_size=70),
    st.floats(allow_nan=False),
    st.integers(2**63, 2**70),
)


@pytest.fixture(params=[0, 256, 512])
def width(request: pytest.FixtureRequest, compiled: ModuleType) -> Iterator[int]:
    """Each width in turn; one that the processor does not have is tested elsewhere."""
    before = compiled.use_width(request.param)
    chosen = compiled.use_width(request.param)
    try:
        if chosen != request.param:
            pytest.skip(f"this processor has no registers of {request.param} bits")
        yield chosen
    finally:
        compiled.use_width(before)


@pytest.mark.parametrize("present", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("hashes", HASHES)
def test_a_blocked_vector_is_asked_for_all_hashes(
    compiled: ModuleType, width: int, hashes: int, present: float
) -> None:
    of = geometry("blocked", "spread", 512 * 500, hashes)
    keys = np.random.default_rng(hashes).integers(-(2**63), 2**63, 5_003, dtype=np.int64)
    prints = fingerprints(keys)
    vectors = [half_full_vector(of, 2), half_full_vector(of, 3)]
    numpy_twin.apply(vectors[1], of, prints[: int(present * len(keys))])
    order = np.random.default_rng(1).permutation(len(keys))
    for asked in (vectors, vectors[1:]):
        ofs = [of] * len(asked)
        expected = numpy_twin.find(asked, ofs, prints[order])
        assert np.array_equal(compiled.find(asked, ofs, prints[order]), expected)
        for form in (keys[order], keys[order].tolist()):
            found = np.zeros(len(keys), np.bool_)
            assert compiled.find_keys(asked, ofs, form, 0, found) == len(keys)
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("hashes", HASHES)
def test_adds_set_the_same_bits(compiled: ModuleType, width: int, hashes: int) -> None:
    of = geometry("blocked", "spread", 512 * 100, hashes)
    prints = some_prints(hashes, 3000, distinct=2500)
    ours, theirs = empty_vector(of), empty_vector(of)
    expected = numpy_twin.insert(theirs, of, prints, PLENTY, PLENTY)
    assert same(compiled.insert(ours, of, prints, PLENTY, PLENTY), expected)
    assert np.array_equal(ours, theirs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(st.one_of(INTEGERS, INTEGERS, st.text("ab", max_size=20)), max_size=200))
def test_lists_have_the_fingerprints_of_their_keys(
    compiled: ModuleType, width: int, keys: list[Any]
) -> None:
    expected = _one_by_one(keys, 0)
    assert compiled.fingerprints_of_list(keys, 0).tolist() == expected
    plain = [key for key in keys if isinstance(key, int)]
    array = np.array(plain, dtype=np.int64)
    assert compiled.fingerprints_of_int64(array, 0).tolist() == [
        print_ for key, print_ in zip(keys, expected, strict=True) if isinstance(key, int)
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    short=st.lists(st.text(st.characters(max_codepoint=127), max_size=50), max_size=150),
    other=st.lists(st.one_of(INTEGERS, st.text(max_size=70)), max_size=2),
)
def test_texts_have_the_fingerprints_of_their_bytes(
    compiled: ModuleType, width: int, short: list[str], other: list[Any]
) -> None:
    """Short ones are hashed together, whatever their lengths; a long one among them is not."""
    keys: list[Any] = [*short, *other, *short[:20]]
    expected = _one_by_one(keys, 0)
    assert compiled.fingerprints_of_list(keys, 0).tolist() == expected
    texts = [key.encode() for key in keys if isinstance(key, str)]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    prints = compiled.fingerprints_of_slices(b"".join(texts), offsets, STR, 0)
    assert prints.tolist() == [
        print_ for key, print_ in zip(keys, expected, strict=True) if isinstance(key, str)
    ]


@pytest.mark.parametrize("length", range(70))
def test_texts_of_every_length_are_hashed_together(
    compiled: ModuleType, width: int, length: int
) -> None:
    keys = [chr(33 + place) * length for place in range(60)] + ["a", "", "b" * 40]
    assert compiled.fingerprints_of_list(keys, 3).tolist() == _one_by_one(keys, 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(KEYS, min_size=1, max_size=40),
    hashes=st.sampled_from(HASHES),
    stages=st.integers(0, 3),
    layout=st.sampled_from(["blocked", "blocked", "sliced", "plain"]),
)
def test_one_key_is_found_like_many(
    compiled: ModuleType, width: int, keys: list[Any], hashes: int, stages: int, layout: str
) -> None:
    of = geometry(layout, "spread", 512 * 3, hashes)
    vectors = [half_full_vector(of, stage) for stage in range(stages)]
    prints = fingerprints(keys, 7)
    if vectors:
        numpy_twin.apply(vectors[-1], of, np.ascontiguousarray(prints[::2]))
    expected = numpy_twin.find(vectors, [of] * stages, prints).tolist()
    slowly: list[Any] = []

    class Asked(compiled.OneKey):  # type: ignore[misc, name-defined]
        def _contains_slowly(self, key: Any) -> bool:
            slowly.append(key)
            return bool(numpy_twin.find(vectors, [of] * stages, fingerprints([key], 7))[0])

    one = Asked(7)
    words = memoryview(np.array([5, 0, 0, 0], np.uint64).tobytes()).cast("Q")
    one._point_at(words, vectors, [of] * stages)
    assert [key in one for key in keys] == expected
    assert not one.is_quick
    assert slowly == keys  # no generation was set yet
    slowly.clear()
    one._fast_generation = 5
    assert [key in one for key in keys] == expected
    assert slowly == [key for key in keys if not _is_plain(key)]
    assert one.is_quick
    one._fast_generation = 6
    assert [key in one for key in keys] == expected
    assert slowly[-len(keys) :] == keys


def _one_by_one(keys: list[Any], seed: int) -> list[list[int]]:
    """As mmh3 says."""
    return [np.frombuffer(fingerprint(key, seed), "<u8").tolist() for key in keys]


def _is_plain(key: Any) -> bool:
    return not isinstance(key, float) and not (isinstance(key, int) and key >= 2**63)


@pytest.mark.parametrize("length", range(70))
def test_murmur_reads_every_length(compiled: ModuleType, length: int) -> None:
    text = bytes(range(100, 100 + length))
    assert compiled.murmur128(text, 9) == mmh3.hash_bytes(text, 9, x64arch=True)
