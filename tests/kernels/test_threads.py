"""Any number of threads gives what one thread gives, and what the numpy kernels give.

Axes: layout x scheme x size (GEOMETRIES), threads, fill, limits, keys that occur again, places
where a part ends, keys that a thread must leave to its caller.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomstore
from bloomstore import Fixed, Scalable
from bloomstore.errors import SpecError
from bloomstore.kernels import numpy_twin, threads
from bloomstore.keys import fingerprints
from bloomstore.keys.encoding import STR
from bloomstore.layout.contract import Geometry
from tests.kernels.cases import (
    GEOMETRIES,
    PLENTY,
    empty_vector,
    half_full_vector,
    same,
    small_geometries,
    some_prints,
)

COUNTS = [1, 2, 3, 7, 40]


@pytest.fixture(autouse=True)
def any_batch_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEAST_KEYS", 1)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_threads_set_the_bits_and_mark_the_keys_of_one(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, of: Geometry, count: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", count)
    left, right = empty_vector(of), empty_vector(of)
    for step in range(4):
        prints = some_prints(100 + step, 2001, distinct=1500)
        few = of.hashes * 500
        for limits in ((few, PLENTY), (PLENTY, 300), (few, 300), (of.hashes * 2001, 2001)):
            expected = numpy_twin.preview(left, of, prints, *limits)
            assert same(compiled.preview(right, of, prints, *limits), expected)
            assert same(numpy_twin.insert(left, of, prints, *limits), expected)
            assert same(compiled.insert(right, of, prints, *limits), expected)
            assert np.array_equal(left, right)
    more = some_prints(1, 3000)
    numpy_twin.apply(left, of, more)
    compiled.apply(right, of, more)
    assert np.array_equal(left, right)


@given(
    of=small_geometries(), keys=st.integers(0, 300), count=st.integers(1, 20), seed=st.integers()
)
def test_threads_agree_in_crowded_vectors(
    compiled: ModuleType, of: Geometry, keys: int, count: int, seed: int
) -> None:
    seed &= 0xFFFF
    vectors = [half_full_vector(of, seed) & half_full_vector(of, seed + 1) for _ in range(2)]
    prints = some_prints(seed, keys, distinct=keys // 2 + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "THREADS", count)
        expected = numpy_twin.insert(vectors[0], of, prints, PLENTY, PLENTY)
        assert same(compiled.insert(vectors[1], of, prints, PLENTY, PLENTY), expected)
        assert np.array_equal(vectors[0], vectors[1])
        asked = some_prints(seed + 1, keys)
        found = numpy_twin.find([vectors[0]], [of], asked)
        assert np.array_equal(compiled.find([vectors[1]], [of], asked), found)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("keys", [0, 1, 2, 255, 256, 257, 10_007])
def test_threads_find_the_same(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, keys: int, count: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", count)
    numbers = np.random.default_rng(keys).integers(-(2**63), 2**63, keys, dtype=np.int64)
    vectors = [half_full_vector(of, 1) for of in GEOMETRIES]
    for vector, of in zip(vectors, GEOMETRIES, strict=True):
        numpy_twin.apply(vector, of, fingerprints(numbers[::3]))
        expected = numpy_twin.find([vector], [of], fingerprints(numbers))
        found = np.zeros(keys, np.bool_)
        assert compiled.find_keys([vector], [of], numbers, 0, found) == keys
        assert np.array_equal(found, expected)
    found = np.zeros(keys, np.bool_)
    compiled.find_keys(vectors, GEOMETRIES, numbers, 0, found)
    assert np.array_equal(found, numpy_twin.find(vectors, GEOMETRIES, fingerprints(numbers)))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("keys", [0, 1, 2, 1000])
def test_threads_hash_arrays_and_slices_alike(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, keys: int, count: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", count)
    numbers = np.random.default_rng(1).integers(-(2**63), 2**63, keys, dtype=np.int64)
    assert np.array_equal(
        compiled.fingerprints_of_int64(numbers, 5), numpy_twin.fingerprints_of_int64(numbers, 5)
    )
    texts = [str(number)[: number % 20] for number in numbers.tolist()]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    memory = memoryview("".join(texts).encode())
    made = compiled.fingerprints_of_slices(memory, offsets, STR, 5)
    assert np.array_equal(made, fingerprints(tuple(texts), 5))


@pytest.mark.parametrize("place", [0, 1, 499, 500, 998, 999])
def test_the_first_slice_outside_of_its_text_is_named(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", 2)
    offsets = np.arange(1001, dtype=np.int64)
    offsets[place + 1 :] += 1000
    with pytest.raises(ValueError, match=f"offsets {place} and {place + 1} are not inside"):
        compiled.fingerprints_of_slices(memoryview(bytes(1000)), offsets, STR, 0)


# What a thread must leave to the caller, who keeps the GIL: text that is not ASCII, -2^63.
LEFT: list[Any] = ["Zürich", -(2**63), "\N{SNOWMAN}"]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("places", [[], [0], [999], [1, 400, 500], list(range(1000))], ids=len)
def test_threads_hash_lists_alike(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, places: list[int], count: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", count)
    keys: list[Any] = [(i, str(i), str(i).encode())[i % 3] for i in range(1000)]
    for place in places:
        keys[place] = LEFT[place % 3]
    expected = fingerprints(tuple(keys), 9)
    assert np.array_equal(compiled.fingerprints_of_list(keys, 9), expected)
    assert np.array_equal(compiled.fingerprints_of_list(keys, 9, 3, 777), expected[3:777])


@pytest.mark.parametrize("place", [0, 499, 500, 999])
@pytest.mark.parametrize("key", [None, 0.5, 2**63, "\ud800", True])
def test_a_key_of_another_kind_leaves_the_list_to_the_caller(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, key: Any, place: int
) -> None:
    monkeypatch.setattr(threads, "THREADS", 2)
    keys: list[Any] = list(range(1000))
    keys[place] = key
    assert compiled.fingerprints_of_list(keys, 0) is None


@pytest.mark.parametrize("layout", ["plain", "sliced", "blocked"])
@pytest.mark.parametrize("kind", ["array", "list", "str"])
def test_filters_are_the_same_whoever_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, kind: str
) -> None:
    """Through growth and to the last key that fits."""
    numbers = np.random.default_rng(2).integers(0, 9000, 20_000)
    keys: Any = {"array": numbers, "list": numbers.tolist(), "str": [str(n) for n in numbers]}[kind]
    made = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "THREADS", count)
        with bloomstore.open(tmp_path / f"store {count}") as store:
            grown = Scalable(target_error=0.01, initial_capacity=500, layout=layout)
            fixed = Fixed(capacity=12_000, target_error=0.01, layout=layout)
            for spec in (grown, fixed):
                for durability in ("process", "commit"):
                    name = f"{spec} {durability}"
                    seen = store.create(name, spec, durability=durability)
                    new = seen.add_many(keys)
                    assert seen.may_contain_many(keys).all()
                    chain = seen._current().live
                    made.append((name, new, [vector.tobytes() for vector in chain.vectors]))
    assert made[:4] == made[4:]


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_threads_is_refused(setting: str) -> None:
    with pytest.raises(SpecError, match="BLOOMSTORE_THREADS"):
        threads.allowed_threads(setting)


def test_the_number_of_threads_is_what_was_asked_for_or_what_there_is() -> None:
    assert threads.allowed_threads("7") == 7
    assert 1 <= threads.allowed_threads("") <= 4


def test_small_batches_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEAST_KEYS", 100)
    monkeypatch.setattr(threads, "THREADS", 3)
    assert [threads.threads_for(keys) for keys in (0, 199, 200, 299, 300, 9999)] == [
        1, 1, 2, 2, 3, 3,
    ]  # fmt: skip


def test_a_part_that_gets_no_thread_is_done_by_the_caller(compiled: ModuleType) -> None:
    """In an address space without room for another stack."""
    code = """if True:
        import resource, sys
        import numpy as np
        from bloomstore.kernels import compiled, threads
        threads.THREADS = 1  # the C library would keep the stack of a thread for the next one
        numbers = np.arange(5000)
        expected = compiled.fingerprints_of_int64(numbers, 0)
        threads.THREADS, threads.LEAST_KEYS = 4, 1
        pages = int(open("/proc/self/statm").read().split()[0])
        most = pages * resource.getpagesize() + (1 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        found = compiled.fingerprints_of_int64(numbers, 0)
        sys.exit(0 if (found == expected).all() else 1)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
