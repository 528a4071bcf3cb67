"""Lookups of many plain keys at once, without fingerprints in between.

In: a verified chain and keys, out: answers, or None for keys that the kernels cannot read by
themselves. The kernels let go of the GIL and ask for an array in several threads
(kernels/threads.py): two take together the processor time of one (19 and 21 ns per absent key of
10^7), and 0.58 of its elapsed time on two nearly idle cores (10^6 keys).

Not here: other kinds of keys (keys), blocks that are not verified yet (chain.py).
"""

from __future__ import annotations

import collections.abc as abc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.filters.chain import Chain
from bloomstore.kernels.contract import is_plain_int64
from bloomstore.keys.batches import check_unchanged

# Keys of one call of a kernel: 10 ms by one thread, after which signals are looked at.
SLICE_KEYS = 1 << 20


def find_keys(chain: Chain, keys: abc.Iterable[Any], seed: int) -> NDArray[np.bool_] | None:
    """Which keys the chain reports; None if it is not verified or cannot take these keys."""
    if not chain.is_verified:
        return None
    if type(keys) is list:
        count = len(keys)
        found = np.zeros(count, np.bool_)
        asked = kernels.find_keys(chain.vectors, chain.geometries, keys, seed, found)
        check_unchanged(keys, count)
        return found if asked == count else None
    if type(keys) is not np.ndarray:
        return None
    if keys.ndim != 1 or not is_plain_int64(keys):
        return None
    found = np.zeros(len(keys), np.bool_)
    for start in range(0, len(keys), SLICE_KEYS):
        part = slice(start, start + SLICE_KEYS)
        kernels.find_keys(chain.vectors, chain.geometries, keys[part], seed, found[part])
    return found
