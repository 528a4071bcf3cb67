"""What the bits of a stage say: its error now, and how many keys they tell of.

In: a geometry, the number of set bits and, where there is one, the vector; out: an error rate or an
Estimate. Formulas are in theory/; here they are chosen by layout.

Not here: several stages together (overlap.py, count.py).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bloomstore.filters.estimate import Estimate
from bloomstore.spec.geometry import CACHE_LINE_BITS, Geometry, LayoutCode
from bloomstore.theory import blocked, sharing, vector

# Two-sided 95 % of a normal distribution.
SIGMAS_95 = 1.959964
# Blocks that are looked at for the error of a blocked vector: 1 MiB, less than a millisecond. Keys
# choose blocks by their hash, so the first are as good a sample as any.
_LOOKED_AT = 1 << 14


def error_at(geometry: Geometry, set_bits: int, bits: NDArray[np.uint8] | None = None) -> float:
    """The error of a stage with this many set bits. Sliced: an upper bound (mean fill).

    Without the vector that of a blocked one is what is expected of the fill; the blocks of a small
    vector may be filled more or less evenly than that.
    """
    fill = min(1.0, set_bits / geometry.vector_bits)
    if geometry.layout is not LayoutCode.BLOCKED:
        return fill**geometry.hashes
    if bits is not None:
        blocks = bits[: _LOOKED_AT * CACHE_LINE_BITS // 8].view(np.uint64).reshape(-1, 8)
        counts = np.bitwise_count(blocks).sum(axis=1, dtype=np.int64)
        return float(np.mean((counts / CACHE_LINE_BITS) ** geometry.hashes))
    count = geometry.slice_bits // CACHE_LINE_BITS
    return blocked.blocked_error_at_fill(count, geometry.hashes, fill)


def keys_from_bits(geometry: Geometry, set_bits: int) -> Estimate:
    """How many different keys this many set bits tell of, those included that set none of them.

    A key that is reported when it comes leaves a vector as it is, and so does adding its bits: that
    it was not added makes no difference here.
    """
    keys, sigma = keys_and_sigma(geometry, set_bits)
    spread = SIGMAS_95 * sigma
    return Estimate(keys, max(0.0, keys - spread), keys + spread, uncertain=not sigma < math.inf)


def keys_and_sigma(geometry: Geometry, set_bits: int) -> tuple[float, float]:
    """The same as a number and its standard error; both are inf for a vector without unset bits."""
    if set_bits == 0:
        return 0.0, 0.0
    bits, hashes = geometry.slice_bits, geometry.hashes
    if set_bits >= geometry.vector_bits:
        return math.inf, math.inf
    if geometry.layout is LayoutCode.SLICED:
        keys = vector.distinct_keys_sliced(bits, set_bits / hashes)
        return keys, vector.sliced_standard_error(bits, hashes, keys)
    if geometry.layout is LayoutCode.BLOCKED:
        blocks = bits // CACHE_LINE_BITS
        keys = blocked.distinct_keys_blocked(blocks, hashes, set_bits)
        return keys, blocked.blocked_standard_error(blocks, hashes, keys)
    keys = vector.distinct_keys_plain(bits, hashes, set_bits)
    return keys, vector.plain_standard_error(bits, hashes, keys)


def offered_per_new(geometry: Geometry, error: float) -> float:
    """How many keys a stage was offered for each that was new to it, until it had this error."""
    hashes = geometry.hashes
    if geometry.layout is not LayoutCode.BLOCKED or not 0.0 < error < 1.0:
        return sharing.offered_per_new(error ** (1.0 / hashes), hashes)
    blocks = geometry.slice_bits // CACHE_LINE_BITS
    mean = error * _mean_over_last(blocks, hashes, float(f"{error:.2g}"))
    return 1.0 / (1.0 - mean) if mean < 1.0 else math.inf


@lru_cache(maxsize=1024)  # stages of one kind have much the same errors
def _mean_over_last(blocks: int, hashes: int, error: float) -> float:
    """The mean error of a blocked vector that is filled until it has this error, over the latter.

    By the formulas of whole vectors of so many blocks; the ratio depends little on how many.
    """
    low, high = 0.0, float(CACHE_LINE_BITS * blocks)
    while blocked.blocked_error(blocks, hashes, high) < error:
        low, high = high, 2.0 * high
    for _ in range(24):
        middle = (low + high) / 2.0
        if blocked.blocked_error(blocks, hashes, middle) < error:
            low = middle
        else:
            high = middle
    return blocked.blocked_mean_error(blocks, hashes, high) / error
