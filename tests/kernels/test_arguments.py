"""Wrong arguments are refused in words by both twins, and nothing is read out of bounds."""

from __future__ import annotations

from copy import copy
from types import ModuleType

import numpy as np
import pytest

from bloomstore.layout.contract import Geometry
from tests.kernels.cases import GEOMETRIES, PLENTY, empty_vector, geometry, some_prints

OF = geometry("sliced", "spread", 1000, 7)
PRINTS = some_prints(1, 10)
WRONG_VECTORS = [
    (np.zeros(OF.vector_bytes - 1, np.uint8), f"must have {OF.vector_bytes} bytes"),
    (np.zeros(OF.vector_bytes + 64, np.uint8), f"must have {OF.vector_bytes} bytes"),
    (np.zeros(0, np.uint8), f"must have {OF.vector_bytes} bytes"),
    (np.zeros(OF.vector_bytes, np.int8), "of type uint8, got int8"),
    (np.zeros(OF.vector_bytes, np.bool_), "of type uint8, got bool"),
    (np.zeros(OF.vector_bytes // 8, np.uint64), "of type uint8, got uint64"),
    (np.zeros(2 * OF.vector_bytes, np.uint8)[::2], "C-contiguous"),
    (np.zeros((2, OF.vector_bytes // 2), np.uint8), "one dimension, got 2"),
    (np.zeros(OF.vector_bytes, object), "of type uint8, got object"),
    (np.zeros(OF.vector_bytes, "datetime64[s]"), "of type uint8, got datetime64"),
    (bytes(OF.vector_bytes), "numpy array, got bytes"),
    (None, "numpy array, got NoneType"),
]
WRONG_PRINTS = [
    (np.zeros((10, 2), np.int64), "of type uint64, got int64"),
    (np.zeros((10, 2), np.float64), "of type uint64, got float64"),
    (np.zeros((10, 2), ">u8"), "of type uint64, got >u8"),
    (np.zeros((10, 2), np.uint32), "of type uint64, got uint32"),
    (np.zeros((10, 4), np.uint64)[:, ::2], "C-contiguous"),
    (np.zeros((2, 10), np.uint64).T, "C-contiguous"),
    (np.zeros((10, 3), np.uint64), r"shape \(n, 2\), got \(10, 3\)"),
    (np.zeros((10, 1), np.uint64), r"shape \(n, 2\), got \(10, 1\)"),
    (np.zeros(20, np.uint64), r"shape \(n, 2\), got \(20,\)"),
    (np.zeros((5, 2, 2), np.uint64), r"shape \(n, 2\)"),
    ([[1, 2]], "numpy array, got list"),
]


@pytest.mark.parametrize(("vector", "message"), WRONG_VECTORS, ids=range(len(WRONG_VECTORS)))
def test_a_wrong_vector_is_refused(twin: ModuleType, vector: object, message: str) -> None:
    for call in (twin.preview, twin.insert):
        with pytest.raises(ValueError, match=message):
            call(vector, OF, PRINTS, PLENTY, PLENTY)
    with pytest.raises(ValueError, match=message):
        twin.apply(vector, OF, PRINTS)
    with pytest.raises(ValueError, match=message):
        twin.find([vector], [OF], PRINTS)
    with pytest.raises(ValueError, match=message):
        twin.find([empty_vector(OF), vector], [OF, OF], PRINTS)


@pytest.mark.parametrize(("prints", "message"), WRONG_PRINTS, ids=range(len(WRONG_PRINTS)))
def test_wrong_prints_are_refused(twin: ModuleType, prints: object, message: str) -> None:
    vector = empty_vector(OF)
    for call in (twin.preview, twin.insert):
        with pytest.raises(ValueError, match=message):
            call(vector, OF, prints, PLENTY, PLENTY)
    with pytest.raises(ValueError, match=message):
        twin.apply(vector, OF, prints)
    with pytest.raises(ValueError, match=message):
        twin.find([vector], [OF], prints)
    assert not vector.any()


def test_a_read_only_vector_is_refused_by_what_writes(twin: ModuleType) -> None:
    vector = empty_vector(OF)
    vector.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        twin.insert(vector, OF, PRINTS, PLENTY, PLENTY)
    with pytest.raises(ValueError, match="read-only"):
        twin.apply(vector, OF, PRINTS)


@pytest.mark.parametrize(("vector", "message"), WRONG_VECTORS[3:], ids=str)
def test_counting_refuses_what_is_not_a_vector(
    twin: ModuleType, vector: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        twin.count_bits(vector)


def test_vectors_without_their_geometries_are_refused(twin: ModuleType) -> None:
    with pytest.raises(ValueError, match="2 vectors, but 1 geometries"):
        twin.find([empty_vector(OF)] * 2, [OF], PRINTS)
    with pytest.raises(ValueError, match="must be a Geometry, got tuple"):
        twin.find([empty_vector(OF)], [(1, 1, 1000, 7)], PRINTS)


@pytest.mark.parametrize(
    ("field", "value"),
    [("scheme", 99), ("scheme", 0), ("hashes", 0), ("hashes", 65), ("hashes", -1),
     ("hashes", 1 << 40), ("slice_bits", 0), ("slice_bits", (1 << 48) + 1), ("slice_bits", -512),
     ("slice_bits", 1 << 70)],
)  # fmt: skip
def test_a_geometry_with_impossible_numbers_is_refused(
    twin: ModuleType, field: str, value: int
) -> None:
    """Only by force can one be made, but a kernel must not read out of bounds even then."""
    broken = geometry("plain", "spread", 1000, 7)
    object.__setattr__(broken, field, value)
    for vector in (np.zeros(128, np.uint8), np.zeros(0, np.uint8), np.zeros(64, np.uint8)):
        with pytest.raises(ValueError, match=r"no kernel|must|not a valid"):
            twin.find([vector], [broken], PRINTS)
        with pytest.raises(ValueError, match=r"no kernel|must|not a valid"):
            twin.insert(vector, broken, PRINTS, PLENTY, PLENTY)


@pytest.mark.parametrize(
    ("made", "field", "value"),
    [
        (geometry("blocked", "spread", 1024, 7), "slice_bits", 1000),
        (geometry("blocked", "spread", 1024, 7), "scheme", 2),
        (geometry("plain", "h3", 1024, 7), "slice_bits", 1000),
    ],
)
def test_a_geometry_that_contradicts_itself_is_refused(
    twin: ModuleType, made: Geometry, field: str, value: int
) -> None:
    broken = copy(made)
    object.__setattr__(broken, field, value)
    with pytest.raises(ValueError, match=r"no kernel|whole lines|takes hash|power of two"):
        twin.find([np.zeros(128, np.uint8)], [broken], PRINTS)


@pytest.mark.parametrize("of", GEOMETRIES, ids=str)
def test_no_keys_are_an_answer_too(twin: ModuleType, of: Geometry) -> None:
    vector, none = empty_vector(of), np.empty((0, 2), np.uint64)
    found = twin.find([vector], [of], none)
    assert (found.shape, found.dtype) == ((0,), np.bool_)
    for call in (twin.preview, twin.insert):
        taken, new, bits = call(vector, of, none, 0, 0)
        assert (taken, new.shape, new.dtype, bits) == (0, (0,), np.bool_, 0)
    assert twin.apply(vector, of, none) is None
    assert not vector.any()


def test_no_vectors_report_nothing(twin: ModuleType) -> None:
    assert twin.find([], [], PRINTS).tolist() == [False] * 10
    assert twin.find((), (), np.empty((0, 2), np.uint64)).tolist() == []


def test_counting_an_empty_vector_gives_zero(twin: ModuleType) -> None:
    assert twin.count_bits(np.zeros(0, np.uint8)) == 0


def test_too_many_keys_for_one_call_are_refused(twin: ModuleType) -> None:
    vector, many = empty_vector(OF), np.zeros((65537, 2), np.uint64)
    with pytest.raises(ValueError, match="at most 65536 fingerprints fit one call, got 65537"):
        twin.preview(vector, OF, many, PLENTY, PLENTY)
    assert not vector.any()
    twin.apply(vector, OF, many)
    assert twin.find([vector], [OF], many).all()


def test_limits_that_are_no_integers_are_refused(twin: ModuleType) -> None:
    with pytest.raises(TypeError):
        twin.insert(empty_vector(OF), OF, PRINTS, 1.5, PLENTY)


def test_flags_that_are_too_few_are_refused(twin: ModuleType) -> None:
    of = GEOMETRIES[0]
    few = np.zeros((8 * of.vector_bytes - 1) >> 9, np.uint8)
    for flags, shift in ((few, 9), (few, 8), (few, 64), (few[::2], 9), (few.astype(np.uint64), 9)):
        with pytest.raises(ValueError, match="flags"):
            twin.mark(flags, shift, of, some_prints(1, 10))
    enough = np.zeros(len(few) + 1, np.uint8)
    enough.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        twin.mark(enough, 9, of, some_prints(1, 10))
