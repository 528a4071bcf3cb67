"""Fingerprints of one key, of a list of keys and of a numpy array.

In: a key, a list or tuple, a 1-D array. Out: 16 bytes, or uint64[n, 2] in the order of the keys.

Invariants
  1. A batch gives for each key what `fingerprint` gives for it alone: each fast path below is
     taken only when the types of all keys are known exactly, and is tested against the general one.
  2. A refused key is named by its place, counted from 0: "key 17 of the batch". `first` is the
     place of the first key given here, when the caller hands a batch over in parts.

The compiled kernels hash lists of exact str, int and bytes objects; `hash_exact` is the way without
them. Not here: streams and other containers (batches.py), Arrow memory (arrow.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from bloomstore import kernels
from bloomstore.errors import KeyTypeError, KeyValueError
from bloomstore.hashing.fingerprint import (
    Prints,
    digest,
    gather,
    murmur,
    murmur_int64,
    murmur_seed,
    murmur_uint64_beyond,
)
from bloomstore.kernels.contract import is_plain_int64
from bloomstore.keys.encoding import (
    BIGINT,
    BYTES,
    FLOAT,
    INT,
    STR,
    Key,
    encode,
    pack_int64,
    refusal,
)

_MASK32 = 0xFFFFFFFF
_STR_SEED = murmur_seed(STR, 0)
_INT_SEED = murmur_seed(INT, 0)
_BYTES_SEED = murmur_seed(BYTES, 0)

# A str is hashed as digest(key.encode()), not by mmh3.hash_bytes(key), which needs no bytes object
# in between and takes 65 ns instead of 90, but crashes the process on a lone surrogate (mmh3 5.3).

_MAX_INT64 = np.uint64(2**63 - 1)


def fingerprint(key: Key, seed: int = 0) -> bytes:
    """The 16 bytes that stand for the key in every lower layer. Equal keys have equal bytes.

    Raises KeyTypeError for an object of another type, KeyValueError for a value that is no key.
    """
    kind = type(key)
    try:
        if kind is str:
            return digest(key.encode(), (seed ^ _STR_SEED) & _MASK32)  # type: ignore[union-attr]
        if kind is int:
            return digest(pack_int64(key), (seed ^ _INT_SEED) & _MASK32)
        if kind is bytes:
            return digest(key, (seed ^ _BYTES_SEED) & _MASK32)  # type: ignore[arg-type]
    except (UnicodeEncodeError, struct.error):
        pass  # a lone surrogate, an int beyond 64 bits
    tag, encoded = encode(key)
    return murmur(encoded, tag, seed)


def refuse(error: KeyTypeError | KeyValueError, position: int) -> NoReturn:
    """Raise the error again with the place of the key in the batch."""
    raise type(error)(f"key {position} of the batch: {error}") from None


def values_of(column: Any, read: Callable[[Any], list[Any]], first: int) -> list[Any]:
    """The values of a column as Python objects; the first that has none is refused by its place."""
    try:
        return read(column)
    except (ArithmeticError, LookupError, NotImplementedError, SystemError, ValueError) as error:
        if len(column) > 1:  # SystemError: numpy raises it for a str that is no Unicode
            for place in range(len(column)):
                values_of(column[place : place + 1], read, first + place)
        refuse(KeyValueError(f"it has no value in Python: {error}"), first)


def from_list(keys: Sequence[Any], seed: int, first: int = 0) -> Prints:
    """Fingerprints of a list or tuple of keys of any kinds."""
    if type(keys) is list:
        prints = kernels.fingerprints_of_list(keys, seed)
        if prints is not None:
            return prints
    kinds = set(map(type, keys))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is str or kind is int or kind is bytes:
            prints = hash_exact(keys, kind, seed)
            if prints is not None:
                return prints
        elif kind is float:
            return _from_floats(np.array(keys, dtype=np.float64), seed, first)
        elif issubclass(kind, np.number | np.bool) and np.dtype(kind).kind in "iubf":
            return from_array(np.array(keys, dtype=kind), seed, first)
    return _one_by_one(keys, seed, first)


def hash_exact(keys: Sequence[Any], kind: type, seed: int) -> Prints | None:
    """Fingerprints of keys that are all exactly str, exactly int or exactly bytes.

    None when a key needs the general path (a lone surrogate, an int beyond 64 bits).
    """
    if kind is int:
        try:
            # fromiter with a dtype never goes through float; 23 ns per key, np.array takes 40.
            array = np.fromiter(keys, dtype=np.int64, count=len(keys))
        except OverflowError:
            return None
        return murmur_int64(array, seed)
    if kind is bytes:
        return gather(list(map(digest, keys, repeat(murmur_seed(BYTES, seed)))))
    try:
        folded = murmur_seed(STR, seed)
        return gather([digest(key.encode(), folded) for key in keys])
    except UnicodeEncodeError:
        return None


def _one_by_one(keys: Sequence[Any], seed: int, first: int) -> Prints:
    digests: list[bytes] = []
    try:
        for key in keys:
            digests.append(fingerprint(key, seed))  # noqa: PERF401 (its length is the place)
    except (KeyTypeError, KeyValueError) as error:
        refuse(error, first + len(digests))
    return gather(digests)


def from_array(array: npt.NDArray[Any], seed: int, first: int = 0) -> Prints:
    """Fingerprints of a 1-D numpy array; an element is the key that its `.item()` is."""
    if array.ndim != 1:
        raise KeyTypeError(
            f"array of {array.ndim} dimensions is not a batch of keys; accepted: 1 dimension"
        )
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(array)
        if masked.any():
            refuse(refusal(None), first + int(np.argmax(masked)))
        array = array.data
    kind, size = array.dtype.kind, array.dtype.itemsize
    if is_plain_int64(array):
        return kernels.fingerprints_of_int64(array, seed)
    if kind in "ib" or (kind == "u" and size < 8):
        return murmur_int64(array, seed)
    if kind == "u":
        return _from_uint64(array, seed)
    if kind == "f" and size <= 8:
        return _from_floats(array.astype(np.float64, copy=False), seed, first)
    if kind == "f":  # longdouble: .item() would not leave numpy
        return _one_by_one(list(array), seed, first)
    if kind in "USOT":
        return from_list(values_of(array, np.ndarray.tolist, first), seed, first)
    raise KeyTypeError(
        f"array of dtype {array.dtype} is not a batch of keys;"
        " accepted: dtypes of int, bool, float, str, bytes, object"
    )


def _from_uint64(array: npt.NDArray[np.uint64], seed: int) -> Prints:
    beyond = array > _MAX_INT64
    prints = murmur_int64(array, seed)
    if beyond.any():
        prints[beyond] = murmur_uint64_beyond(array[beyond], seed, BIGINT)
    return prints


def _from_floats(array: npt.NDArray[np.float64], seed: int, first: int) -> Prints:
    """Doubles: whole numbers are ints, large ones big ints, the others their own eight bytes."""
    array = np.ascontiguousarray(array, dtype=np.float64)
    nan = np.isnan(array)
    if nan.any():
        _one_by_one([float("nan")], seed, first + int(np.argmax(nan)))
    whole = (np.trunc(array) == array) & np.isfinite(array)
    small = whole & (array >= -(2.0**63)) & (array < 2.0**63)
    if small.all():  # ints that became floats on their way here
        return murmur_int64(array.astype(np.int64), seed)
    prints = murmur_int64(array.view(np.int64), seed, FLOAT)
    prints[small] = murmur_int64(array[small].astype(np.int64), seed)
    large = whole & ~small
    if large.any():
        prints[large] = _one_by_one(array[large].tolist(), seed, first)
    return prints
