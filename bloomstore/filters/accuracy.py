"""What the fill of a stage says: its error now, and how many distinct keys it holds.

In: a geometry and the number of set bits, out: an error rate or an Estimate. Formulas are in
theory/; here they are chosen by layout.
"""

from __future__ import annotations

import collections.abc as abc
import math

from bloomstore.filters.estimate import Estimate
from bloomstore.spec.geometry import CACHE_LINE_BITS, Geometry, LayoutCode
from bloomstore.theory import blocked, vector

# Two-sided 95 % of a normal distribution.
_SIGMAS_95 = 1.959964


def error_at(geometry: Geometry, set_bits: int) -> float:
    """Expected error of a stage with this many set bits. Sliced: an upper bound (mean fill)."""
    fill = min(1.0, set_bits / geometry.vector_bits)
    if geometry.layout is LayoutCode.BLOCKED:
        blocks = geometry.slice_bits // CACHE_LINE_BITS
        return blocked.blocked_error_at_fill(blocks, geometry.hashes, fill)
    return fill**geometry.hashes


def distinct_keys(stages: abc.Iterable[tuple[Geometry, int]]) -> Estimate:
    """How many different keys were added to the stages, oldest first, from their set bits.

    A key that was reported by mistake when it was added set no bit. How many those were follows
    from the errors: that of each older stage, and of its own while it filled, which is f/(k+1) on
    average when fill grows evenly to the k-th root of f.
    """
    value = variance = older_error = 0.0
    for geometry, set_bits in stages:
        keys, sigma = _distinct_keys_of_one(geometry, set_bits)
        if math.isinf(keys) or math.isinf(sigma):
            return Estimate(math.inf, 0.0, math.inf, uncertain=True)
        error = error_at(geometry, set_bits)
        passed = 1.0 - min(0.99, older_error + error / (geometry.hashes + 1))
        skipped = keys / passed - keys
        value += keys + skipped
        variance += (sigma / passed) ** 2 + skipped
        older_error += error
    spread = _SIGMAS_95 * math.sqrt(variance)
    return Estimate(value, max(0.0, value - spread), value + spread)


def _distinct_keys_of_one(geometry: Geometry, set_bits: int) -> tuple[float, float]:
    if set_bits == 0:
        return 0.0, 0.0
    bits, hashes = geometry.slice_bits, geometry.hashes
    if geometry.layout is LayoutCode.SLICED:
        keys = vector.distinct_keys_sliced(bits, set_bits / hashes)
        return keys, vector.sliced_standard_error(bits, hashes, keys)
    if geometry.layout is LayoutCode.BLOCKED:
        blocks = bits // CACHE_LINE_BITS
        keys = blocked.distinct_keys_blocked(blocks, hashes, set_bits)
        return keys, blocked.blocked_standard_error(blocks, hashes, keys)
    keys = vector.distinct_keys_plain(bits, hashes, set_bits)
    return keys, vector.plain_standard_error(bits, hashes, keys)
