"""Lookups of many plain keys at once: no fingerprints in between, several threads for large arrays.

In: a verified chain and keys, out: answers, or None for keys that the kernels cannot read by
themselves. Arrays are split by keys: threads only read the vectors and write answers of their own.
The kernels let go of the GIL: two threads take together the processor time of one (19 and 21 ns per
absent key of 10^7), and 0.58 of its elapsed time on two nearly idle cores (10^6 keys).

BLOOMSTORE_THREADS says how many threads one call may use; the default is one for each processor
that this process may run on, at most four: more of them wait for the same memory.

Not here: other kinds of keys (keys), blocks that are not verified yet (chain.py).
"""

from __future__ import annotations

import collections.abc as abc
import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.errors import SpecError
from bloomstore.filters.chain import Chain

# Keys of one call of a kernel: 3 ms, after which signals are looked at. A thread takes at least as
# many: it takes 0.1 ms to start and to end.
SLICE_KEYS = 1 << 18
_MOST_THREADS = 4


def allowed_threads(setting: str) -> int:
    """The number of threads that this setting asks for; "" is the default."""
    if not setting:
        available = getattr(os, "sched_getaffinity", None)
        processors = len(available(0)) if available is not None else os.cpu_count() or 1
        return min(_MOST_THREADS, processors)
    if not setting.isdecimal() or int(setting) < 1:
        raise SpecError(f"BLOOMSTORE_THREADS must be a positive number, got {setting!r}")
    return int(setting)


THREADS = allowed_threads(os.environ.get("BLOOMSTORE_THREADS", ""))


def find_keys(chain: Chain, keys: abc.Iterable[Any], seed: int) -> NDArray[np.bool_] | None:
    """Which keys the chain reports; None if it is not verified or cannot take these keys."""
    if not chain.is_verified:
        return None
    if type(keys) is list:
        found = np.zeros(len(keys), np.bool_)
        asked = kernels.find_keys(chain.vectors, chain.geometries, keys, seed, found)
        return found if asked == len(keys) else None
    if type(keys) is not np.ndarray:
        return None
    if keys.dtype != np.int64 or keys.ndim != 1 or not keys.flags.c_contiguous:
        return None
    return _find_in_array(chain, keys, seed)


def _find_in_array(chain: Chain, keys: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    vectors, geometries = chain.vectors, chain.geometries
    found = np.zeros(len(keys), np.bool_)
    errors: list[BaseException] = []

    def ask(first: int, end: int) -> None:
        for start in range(first, end, SLICE_KEYS):
            stop = min(end, start + SLICE_KEYS)
            if errors:
                return
            kernels.find_keys(vectors, geometries, keys[start:stop], seed, found[start:stop])

    def ask_in_thread(first: int, end: int) -> None:
        try:
            ask(first, end)
        except BaseException as error:  # noqa: BLE001  raised again by the caller's thread
            errors.append(error)

    parts = max(1, min(THREADS, len(keys) // SLICE_KEYS))
    bounds = [len(keys) * part // parts for part in range(parts + 1)]
    others = [
        threading.Thread(target=ask_in_thread, args=(bounds[part], bounds[part + 1]), daemon=True)
        for part in range(1, parts)
    ]
    for thread in others:
        thread.start()
    try:
        ask(bounds[0], bounds[1])
    except BaseException as error:
        errors.append(error)  # an interrupt: the others stop after their slice
        raise
    finally:
        for thread in others:
            thread.join()
    if errors:
        raise errors[0]
    return found
