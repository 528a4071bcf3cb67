"""Many keys in any container -> fingerprints, in chunks of bounded size.

In: a list, tuple, set, range, generator or any other iterable of keys; a 1-D numpy array; an Arrow
Array or ChunkedArray; a pandas Series or Index; a polars Series. Out: uint64[n, 2] per chunk, in
the order of the container.

Invariants
  1. A container that cannot be read is refused by the call itself, not with the first chunk.
  2. No more than one chunk of an iterator is in memory, and none is drawn before it is needed.
  3. pyarrow, pandas and polars are never imported: their objects are recognised by the module of
     their type, and read by their own methods. Arrays are sliced, not copied.

Not here: the loops over keys (sequences.py, arrow.py).
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MappingView,
    Sequence,
)
from collections.abc import (
    Set as AbstractSet,
)
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np

from bloomstore import kernels
from bloomstore.errors import KeysChanged, KeyTypeError, KeyValueError, SpecError
from bloomstore.hashing.fingerprint import Prints
from bloomstore.keys.arrow import from_arrow
from bloomstore.keys.encoding import Key
from bloomstore.keys.sequences import from_array, from_list, refuse, values_of

# 16384 fingerprints are 256 KiB: they stay in the cache on their way to the kernels.
CHUNK_KEYS: Final = 16384

# Containers that reading leaves as they are. Iterators are none, even if they have a length.
_CONTAINERS: Final = (Sequence, AbstractSet, Mapping, MappingView)

_Reader: TypeAlias = Callable[[Any, int, int], Prints]
_Slicer: TypeAlias = Callable[[Any, int, int], Any]


def fingerprints(keys: Iterable[Key], seed: int = 0) -> Prints:
    """Fingerprints of all keys at once: row i is fingerprint(key i), as two little-endian numbers.

    Raises KeyTypeError or KeyValueError that names the key by its place, counted from 0.
    """
    access = _access(keys)
    if access is None or type(keys) is list:
        return from_list(list(_iterator(keys)), seed)
    reader, _ = access
    return reader(keys, seed, 0)


def fingerprint_chunks(
    keys: Iterable[Key], seed: int = 0, chunk_keys: int = CHUNK_KEYS
) -> Iterator[Prints]:
    """Fingerprints of the keys, at most chunk_keys per array; empty arrays are not given.

    An iterator is drawn from only as chunks are asked for. After a refused key it has lost the
    keys of that chunk; the chunks before it were given.
    """
    if chunk_keys < 1:
        raise SpecError(f"chunk_keys must be at least 1, got {chunk_keys}")
    access = _access(keys)
    if access is None:
        return _stream_chunks(_iterator(keys), seed, chunk_keys)
    count = len(keys)  # type: ignore[arg-type]
    if type(keys) is list:
        return _chunks(keys, count, partial(_part_of_list, keys, seed), chunk_keys)
    return _chunks(keys, count, partial(_part, keys, *access, seed), chunk_keys)


def _iterator(keys: Any) -> Iterator[Any]:
    """The keys one by one; a container that changes its length meanwhile raises KeysChanged."""
    try:
        iterator = iter(keys)
    except TypeError as error:
        raise KeyTypeError(f"{type(keys).__name__} is not a batch of keys: {error}") from None
    return _watched(keys, len(keys), iterator) if isinstance(keys, _CONTAINERS) else iterator


def _watched(keys: Any, count: int, iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except RuntimeError:  # a set, a dict or a deque was changed during the iteration
        if type(keys).__module__ in ("builtins", "collections"):
            raise KeysChanged(type(keys).__name__) from None
        raise
    check_unchanged(keys, count)


def _stream_chunks(keys: Iterator[Key], seed: int, chunk_keys: int) -> Iterator[Prints]:
    first = 0
    while chunk := list(islice(keys, chunk_keys)):
        yield from_list(chunk, seed, first)
        first += len(chunk)


def _chunks(
    keys: Any, count: int, read: Callable[[int, int], Prints], chunk_keys: int
) -> Iterator[Prints]:
    """Reads part by part.

    Nothing here refers to a part while its consumer has it: once the consumer drops it, the next
    one gets the same memory. New pages would cost 1.5 ms for each million keys.
    """
    for first in range(0, count, chunk_keys):
        yield _read_part(keys, count, read, first, min(chunk_keys, count - first))


def _read_part(
    keys: Any, count: int, read: Callable[[int, int], Prints], first: int, size: int
) -> Prints:
    """One part of the keys, which other threads may have changed since the part before."""
    prints = read(first, size)
    check_unchanged(keys, count)
    if len(prints) != size:
        raise KeysChanged(type(keys).__name__)
    return prints


def check_unchanged(keys: Any, count: int) -> None:
    """Raises KeysChanged if the container has another length than when the call began."""
    if len(keys) != count:
        raise KeysChanged(type(keys).__name__, count, len(keys))


def _part(keys: Any, reader: _Reader, slicer: _Slicer, seed: int, first: int, count: int) -> Prints:
    return reader(slicer(keys, first, count), seed, first)


def _part_of_list(keys: list[Any], seed: int, first: int, count: int) -> Prints:
    """Parts of a list are hashed in place if they can be: a slice costs 5 ns per key."""
    prints = kernels.fingerprints_of_list(keys, seed, first, first + count)
    return from_list(keys[first : first + count], seed, first) if prints is None else prints


def _access(keys: Any) -> tuple[_Reader, _Slicer] | None:
    """How to read and slice a container; None for one that can only be iterated."""
    kind = type(keys)
    if kind is list or kind is tuple:
        return from_list, _brackets
    if isinstance(keys, np.ndarray):
        if keys.ndim != 1:
            from_array(keys, 0)  # refuses
        return from_array, _brackets
    root = kind.__module__.partition(".")[0]
    if root == "pyarrow" and hasattr(keys, "null_count") and hasattr(keys, "slice"):
        return from_arrow, _slice_method
    if root == "polars" and kind.__name__ == "Series":
        return _from_polars, _slice_method
    if root == "pandas" and getattr(keys, "ndim", 0) == 1 and hasattr(keys, "to_numpy"):
        return _from_pandas, _rows if hasattr(keys, "iloc") else _brackets
    if root in ("pyarrow", "polars", "pandas"):
        raise KeyTypeError(
            f"{root} {kind.__name__} is not a batch of keys; accepted: one column of it"
        )
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise _one_key(keys)
    if not isinstance(keys, Iterable):
        raise _one_key(keys)
    return None


def is_column(keys: object) -> bool:
    """Whether this is a container of known length that is sliced without running its own code."""
    return type(keys) is range or _access(keys) is not None


def _one_key(keys: object) -> KeyTypeError:
    if keys is None:
        return KeyTypeError("None is not a batch of keys; accepted: an iterable of keys")
    name = type(keys).__name__
    article = "an" if name[0] in "aeiouAEIO" else "a"
    return KeyTypeError(f"{article} {name} is one key, not many: use add or `in`")


def _brackets(keys: Any, first: int, count: int) -> Any:
    return keys[first : first + count]


def _slice_method(keys: Any, first: int, count: int) -> Any:
    return keys.slice(first, count)


def _rows(keys: Any, first: int, count: int) -> Any:
    return keys.iloc[first : first + count]


def _from_pandas(keys: Any, seed: int, first: int) -> Prints:
    """A Series, Index or extension array: numpy's memory if there is one, else Python objects."""
    dtype = keys.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iubfO":
        return from_array(keys.to_numpy(), seed, first)
    # list(keys) would build a scalar at a time: 890 ns per str against 55.
    return from_array(keys.to_numpy(dtype=object), seed, first)


def _from_polars(keys: Any, seed: int, first: int) -> Prints:
    dtype = keys.dtype
    if getattr(dtype, "time_unit", None) == "ns":  # polars would cut them to microseconds
        raise KeyTypeError(
            f"polars Series of {dtype} is not a batch of keys; accepted: time units 'us' and 'ms'"
        )
    if str(dtype) in _POLARS_NUMBERS and not keys.null_count():
        return from_array(keys.to_numpy(), seed, first)
    unit = "D" if str(dtype) == "Date" else getattr(dtype, "time_unit", None)
    if unit in _POLARS_TIMES:
        _check_years(keys.to_physical(), _POLARS_TIMES[unit], first)
    return from_list(values_of(keys, _to_list, first), seed, first)


def _check_years(numbers: Any, of_a_day: int, first: int) -> None:
    """Refuses the first time outside years 1..9999, at which polars itself would panic."""
    before, after = -719_162 * of_a_day, 2_932_897 * of_a_day  # days from 1970-01-01
    outside = ((numbers < before) | (numbers >= after)).fill_null(value=False)
    if outside.any():
        refuse(KeyValueError("accepted: years 1..9999"), first + outside.arg_max())


def _to_list(keys: Any) -> list[Any]:
    values: list[Any] = keys.to_list()
    return values


_POLARS_TIMES: Final = {"D": 1, "ms": 86_400_000, "us": 86_400_000_000}
_POLARS_NUMBERS: Final = frozenset(
    {"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}
    | {"Float32", "Float64", "Boolean"}
)
