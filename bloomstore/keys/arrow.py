"""Fingerprints of Arrow arrays, read from their buffers in place.

In: a pyarrow Array or ChunkedArray (any object with the same methods). Out: uint64[n, 2].

    type                              read as
    int*, uint*, bool, half .. double numpy array over the values buffer
    string, large_string              slices of the text buffer between two offsets
    binary, large_binary              the same
    string_view, binary_view          16 bytes per value: the length, then up to 12 bytes of text,
                                      or 4 bytes of it, number of the text buffer, offset in it
    fixed_size_binary[w]              every w bytes
    dictionary<...>                   fingerprints of the dictionary, taken by the indices
    date32, decimal*, timestamp (not of nanoseconds), uuid     Python objects, one by one

Invariants
  1. A null is refused and named by its place in the batch, as None is.
  2. Slices (an offset into the buffers) are read where they lie: nothing is copied but offsets.

pyarrow is not imported here or anywhere else: everything goes through the methods of the object
that the caller gave.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bloomstore import kernels
from bloomstore.errors import KeyTypeError, KeyValueError
from bloomstore.hashing.fingerprint import Prints, digest, gather, murmur_seed
from bloomstore.kernels.contract import is_plain_int64
from bloomstore.keys.encoding import BYTES, STR, refusal
from bloomstore.keys.sequences import from_array, from_list, refuse, values_of

_NUMBERS: Final = {
    "int8": "<i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "<u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "halffloat": "<f2",
    "float": "<f4",
    "double": "<f8",
}
_OFFSETS: Final = {
    "string": (STR, "<i4"),
    "large_string": (STR, "<i8"),
    "binary": (BYTES, "<i4"),
    "large_binary": (BYTES, "<i8"),
}
_VIEWS: Final = {"string_view": STR, "binary_view": BYTES}
# timestamp[ns] is missing on purpose: datetimes have microseconds, and reading them as Python
# objects would make pyarrow import pandas.
_AS_PYTHON: Final = (
    "date32",
    "decimal",
    "timestamp[s",
    "timestamp[ms",
    "timestamp[us",
    "extension<arrow.uuid>",
)
_VIEW_BYTES: Final = 16
_INLINE_BYTES: Final = 12


def from_arrow(array: Any, seed: int, first: int = 0) -> Prints:
    """Fingerprints of an Array or a ChunkedArray."""
    if not hasattr(array, "chunks"):
        return _from_one(array, seed, first)
    parts = [np.empty((0, 2), dtype=np.uint64)]
    for chunk in array.chunks:
        parts.append(_from_one(chunk, seed, first))
        first += len(chunk)
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def hash_slices(
    memory: memoryview, offsets: npt.NDArray[Any], tag: int, seed: int, first: int = 0
) -> Prints:
    """Fingerprints of the keys that lie between each offset into memory and the next."""
    if not is_plain_int64(offsets):
        offsets = offsets.astype(np.int64)
    try:
        prints = kernels.fingerprints_of_slices(memory, offsets, tag, seed)
    except ValueError:  # offsets that lead out of the memory: the lines below name the first
        prints = None
    if prints is not None:
        return prints
    outside = (offsets[:-1] < 0) | (offsets[:-1] > offsets[1:]) | (offsets[1:] > len(memory))
    _refuse_outside(outside, first)
    folded = murmur_seed(tag, seed)
    bounds = pairwise(offsets.tolist())
    return gather([digest(memory[start:stop], folded) for start, stop in bounds])


def _from_one(array: Any, seed: int, first: int) -> Prints:
    name = str(array.type)
    keys = len(array)
    if array.null_count:
        nulls = array.is_null().to_pylist()
        refuse(refusal(None), first + nulls.index(True))
    if name in _NUMBERS:
        return from_array(_numbers(array, _NUMBERS[name]), seed, first)
    if name.startswith("dictionary<"):
        return _from_dictionary(array, seed, first)
    if name.startswith(_AS_PYTHON):
        return _from_objects(array, seed, first)
    if name == "bool":
        return from_array(_bools(array), seed, first)
    if name in _OFFSETS:
        tag, width = _OFFSETS[name]
        if keys == 0:  # an empty array may come without its buffers
            return gather([])
        offsets = _window(array.buffers()[1], width, array.offset, keys + 1)
        return hash_slices(_memory(array.buffers()[2]), offsets, tag, seed, first)
    if name in _VIEWS:
        return _from_views(array, _VIEWS[name], seed, first)
    if name.startswith("fixed_size_binary["):
        width = array.type.byte_width
        offsets = np.arange(array.offset, array.offset + keys + 1, dtype=np.int64) * width
        return hash_slices(_memory(array.buffers()[1]), offsets, BYTES, seed, first)
    if name == "null":  # without values, since nulls were refused above
        return gather([])
    raise KeyTypeError(
        f"Arrow array of type {name} is not a batch of keys; accepted: ints, floats, bool, strings,"
        " binary, date32, decimal, timestamps up to microseconds, uuid, dictionaries of these"
    )


def _refuse_outside(outside: npt.NDArray[np.bool_], first: int) -> None:
    """Refuses the first key whose offset or index leads out of the array's own memory."""
    if outside.any():
        why = "its offset or index leads out of the Arrow array, which is damaged"
        refuse(KeyValueError(why), first + int(np.argmax(outside)))


def _memory(buffer: Any) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _window(buffer: Any, dtype: str, first: int, values: int) -> npt.NDArray[Any]:
    """`values` numbers of a buffer, from number `first` on."""
    width = np.dtype(dtype).itemsize
    memory = _memory(buffer)[first * width : (first + values) * width]
    return np.frombuffer(memory, dtype=dtype)


def _numbers(array: Any, dtype: str) -> npt.NDArray[Any]:
    return _window(array.buffers()[1], dtype, array.offset, len(array))


def _bools(array: Any) -> npt.NDArray[Any]:
    first, odd = divmod(array.offset, 8)
    octets = _window(array.buffers()[1], "<u1", first, -(-(odd + len(array)) // 8))
    return np.unpackbits(octets, bitorder="little")[odd : odd + len(array)]


def _from_views(array: Any, tag: int, seed: int, first: int) -> Prints:
    views, *texts = array.buffers()[1:]
    memory = _memory(views)
    long = [_memory(text) for text in texts]
    table = _window(views, "<i4", 4 * array.offset, 4 * len(array)).reshape(-1, 4)
    fields = table.tolist()
    _refuse_outside(_leads_out(table.astype(np.int64), long), first)
    start = array.offset * _VIEW_BYTES + 4
    folded = murmur_seed(tag, seed)
    digests = []
    for length, _, number, offset in fields:
        if length <= _INLINE_BYTES:
            digests.append(digest(memory[start : start + length], folded))
        else:
            digests.append(digest(long[number][offset : offset + length], folded))
        start += _VIEW_BYTES
    return gather(digests)


def _leads_out(table: npt.NDArray[np.int64], texts: list[memoryview]) -> npt.NDArray[np.bool_]:
    """Which views point outside the text buffers."""
    length, _, number, offset = table.T
    sizes = np.array([len(text) for text in texts] or [0])
    exists = (number >= 0) & (number < len(texts))
    end = np.where(exists, sizes[np.where(exists, number, 0)], -1)
    outside = (offset < 0) | (offset + length > end)
    leads_out: npt.NDArray[np.bool_] = (length < 0) | ((length > _INLINE_BYTES) & outside)
    return leads_out


def _from_dictionary(array: Any, seed: int, first: int) -> Prints:
    words = array.dictionary
    indices = _numbers(array.indices, _NUMBERS[str(array.indices.type)])
    _refuse_outside((indices < 0) | (indices >= len(words)), first)
    if len(words) <= len(array):
        try:
            prints: Prints = from_arrow(words, seed)[indices]
            return prints
        except (KeyTypeError, KeyValueError):
            pass  # a null or NaN that perhaps no row uses: read the rows instead
    try:
        rows = array.dictionary_decode()
    except NotImplementedError:  # pyarrow cannot take all types of values by their index
        return _word_by_word(words, indices, seed, first)
    return from_arrow(rows, seed, first)


def _word_by_word(words: Any, indices: npt.NDArray[Any], seed: int, first: int) -> Prints:
    used, row, place = np.unique(indices, return_index=True, return_inverse=True)
    prints = np.empty((len(used), 2), dtype=np.uint64)
    for i in np.argsort(row).tolist():  # in the order of the rows: the first refused one is named
        prints[i] = from_arrow(words.slice(int(used[i]), 1), seed, first + int(row[i]))[0]
    of_rows: Prints = prints[place]
    return of_rows


def _from_objects(array: Any, seed: int, first: int) -> Prints:
    return from_list(values_of(array, _to_pylist, first), seed, first)


def _to_pylist(array: Any) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values
