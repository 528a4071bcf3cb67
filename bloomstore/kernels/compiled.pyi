# Types of compiled.pyx; numpy_twin.py says what the functions do.

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore.kernels.single_key import Keeper as Keeper
from bloomstore.kernels.single_key import OneKey as OneKey
from bloomstore.layout.contract import Geometry

BACKEND: str

def use_width(bits: int) -> int: ...
def find(
    vectors: Sequence[NDArray[np.uint8]],
    geometries: Sequence[Geometry],
    prints: NDArray[np.uint64],
) -> NDArray[np.bool_]: ...
def find_keys(
    vectors: Sequence[NDArray[np.uint8]],
    geometries: Sequence[Geometry],
    keys: list[Any] | NDArray[np.int64],
    seed: int,
    found: NDArray[np.bool_],
) -> int: ...
def are_all(values: list[Any], kind: type) -> bool: ...
def are_integers(values: list[Any], least: int, most: int) -> bool: ...
def preview(
    vector: NDArray[np.uint8],
    geometry: Geometry,
    prints: NDArray[np.uint64],
    bits_left: int,
    keys_left: int,
) -> tuple[int, NDArray[np.bool_], int]: ...
def insert(
    vector: NDArray[np.uint8],
    geometry: Geometry,
    prints: NDArray[np.uint64],
    bits_left: int,
    keys_left: int,
) -> tuple[int, NDArray[np.bool_], int]: ...
def apply(vector: NDArray[np.uint8], geometry: Geometry, prints: NDArray[np.uint64]) -> None: ...
def mark(
    flags: NDArray[np.uint8], shift: int, geometry: Geometry, prints: NDArray[np.uint64]
) -> None: ...
def count_bits(vector: NDArray[np.uint8]) -> int: ...
def block_checksums(
    vector: NDArray[np.uint8], identity: bytes, block_bytes: int, blocks: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], int]: ...
def fingerprints_of_int64(array: NDArray[np.int64], seed: int) -> NDArray[np.uint64]: ...
def fingerprints_of_list(
    keys: list[Any], seed: int, start: int = 0, stop: int | None = None
) -> NDArray[np.uint64] | None: ...
def fingerprints_of_slices(
    memory: memoryview, offsets: NDArray[np.int64], tag: int, seed: int
) -> NDArray[np.uint64] | None: ...
def murmur128(from_bytes: bytes | bytearray | memoryview, seed: int) -> bytes: ...
