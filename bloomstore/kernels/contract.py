"""The arguments of kernels: checks that keep a loop over raw memory inside its vector.

In: arrays and geometries from a caller; out: nothing, or a ValueError that says what is wrong.
The numpy twin calls these; the compiled twin makes the same checks on the buffers it takes.

Not here: the limits of the numbers inside a geometry (layout/contract.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore.layout.contract import Geometry
from bloomstore.layout.layouts import geometry_of

# A preview remembers what earlier keys of the call would have set: this bounds that memory.
MAX_PRINTS_PER_CALL = 65536

IDENTITY_BYTES = 24  # of a segment, in the checksum of a block

FAR = 1 << 62  # more bits and more keys than any vector can have


def is_plain_int64(array: NDArray[Any]) -> bool:
    """Whether kernels can read the array in place as int64: contiguous, aligned, native order."""
    kind, flags = array.dtype, array.flags
    return kind == np.int64 and kind.byteorder == "=" and flags.c_contiguous and flags.aligned


def check_prints(prints: NDArray[np.uint64]) -> None:
    """Refuse anything but a C-contiguous uint64[n, 2]."""
    _check_array("prints", prints, np.dtype(np.uint64))
    if prints.ndim != 2 or prints.shape[1] != 2:
        raise ValueError(f"prints must have the shape (n, 2), got {prints.shape}")


def check_few_prints(prints: NDArray[np.uint64]) -> None:
    """Refuse more fingerprints than one preview takes."""
    check_prints(prints)
    if len(prints) > MAX_PRINTS_PER_CALL:
        raise ValueError(
            f"at most {MAX_PRINTS_PER_CALL} fingerprints fit one call, got {len(prints)}"
        )


def check_int64(array: NDArray[np.int64]) -> None:
    """Refuse anything but a C-contiguous int64[n]."""
    _check_array("array", array, np.dtype(np.int64))
    if array.ndim != 1:
        raise ValueError(f"array must have one dimension, got {array.ndim}")


def check_vector(
    vector: NDArray[np.uint8], geometry: Geometry | None, *, to_write: bool = False
) -> None:
    """Refuse anything but the memory of one vector of this geometry (None: of any length)."""
    _check_array("vector", vector, np.dtype(np.uint8))
    if vector.ndim != 1:
        raise ValueError(f"vector must have one dimension, got {vector.ndim}")
    if to_write and not vector.flags.writeable:
        raise ValueError("vector must be writable, got a read-only array")
    if geometry is None:
        return
    _check_geometry(geometry)
    if len(vector) != geometry.vector_bytes:
        raise ValueError(
            f"vector must have {geometry.vector_bytes} bytes ({geometry}), got {len(vector)}"
        )


def check_vectors(vectors: Sequence[NDArray[np.uint8]], geometries: Sequence[Geometry]) -> None:
    """Refuse vectors that do not fit their geometries."""
    if len(vectors) != len(geometries):
        raise ValueError(f"got {len(vectors)} vectors, but {len(geometries)} geometries")
    for vector, geometry in zip(vectors, geometries, strict=True):
        check_vector(vector, geometry)


def check_found(found: NDArray[np.bool_], keys: int | None) -> None:
    """Refuse an array that cannot take the answers for this many keys (None: for any number)."""
    _check_array("found", found, np.dtype(np.bool_))
    keys = len(found) if keys is None else keys
    if found.shape != (keys,) or not found.flags.writeable:
        raise ValueError(f"found must be writable and have {keys} entries, got {found.shape}")


def check_blocks(
    vector: NDArray[np.uint8], identity: bytes, block_bytes: int, blocks: NDArray[np.int64]
) -> None:
    """Refuse blocks that do not lie inside the vector."""
    check_vector(vector, None)
    _check_array("blocks", blocks, np.dtype(np.int64))
    if blocks.ndim != 1:
        raise ValueError(f"blocks must have one dimension, got {blocks.ndim}")
    if len(identity) != IDENTITY_BYTES:
        raise ValueError(f"identity must have {IDENTITY_BYTES} bytes, got {len(identity)}")
    if block_bytes < 8 or block_bytes % 8:
        raise ValueError(f"block_bytes must be a multiple of 8, got {block_bytes}")
    if len(blocks) and not 0 <= blocks.min() <= blocks.max() < -(-len(vector) // block_bytes):
        raise ValueError(f"blocks must lie inside {len(vector)} bytes")


def check_flags(flags: NDArray[np.uint8], shift: int, geometry: Geometry) -> None:
    """Refuse flags that are too few for a vector, or that stand for less than a line each."""
    _check_geometry(geometry)
    _check_array("flags", flags, np.dtype(np.uint8))
    if flags.ndim != 1:
        raise ValueError(f"flags must have one dimension, got {flags.ndim}")
    if not flags.flags.writeable:
        raise ValueError("flags must be writable, got a read-only array")
    bits = 8 * geometry.vector_bytes
    if not 9 <= shift <= 63 or len(flags) <= (bits - 1) >> shift:
        raise ValueError(f"{len(flags)} flags do not fit {bits} bits, shifted by {shift}")


def limit(number: int) -> int:
    """The same limit, brought into the range of a signed 64-bit integer."""
    return max(-1, min(index(number), FAR))


def _check_geometry(geometry: Geometry) -> None:
    """Refuse impossible numbers, however they came into the object, by making it once more."""
    if not isinstance(geometry, Geometry):
        raise ValueError(f"geometry must be a Geometry, got {type(geometry).__name__}")
    geometry_of(geometry.layout, geometry.scheme, geometry.slice_bits, geometry.hashes)


def _check_array(name: str, array: object, dtype: np.dtype[np.generic]) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be a numpy array, got {type(array).__name__}")
    if array.dtype != dtype:
        raise ValueError(f"{name} must be of type {dtype}, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
