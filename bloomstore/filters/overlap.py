"""The error of a chain as its bits are, from the errors of its stages and a sample.

Stages share positions, so their mistakes are neither disjoint nor independent (theory/sharing), and
no formula says how many mistakes two stages have in common. A sample of fingerprints does: x stages
report a fingerprint, and y says whether any stage does. The mean of x is known exactly, as the sum
of the errors, so the sample serves for the difference only (a regression estimate): its spread is
that of y - b x, a third of that of y at an error of 0.2.

In: vectors, geometries and errors of stages, oldest first; out: for each stage the error of the
chain up to it, with its standard error. The same bits give the same numbers: the sample is fixed.

Not here: errors of one stage (layout).
"""

from __future__ import annotations

import collections.abc as abc
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bloomstore import kernels
from bloomstore.layout.contract import Geometry
from bloomstore.theory.scalable import compound_error

# 2^14 fingerprints take 0.1 ms per stage, and give an error of 0.2 to 1 % of itself.
FEW = 1 << 14
MANY = 1 << 16
# Below this sum of errors the difference to independent stages is about a thousandth.
_SMALL = 0.002
_SEED = 20070301
# Of SplitMix64: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014).
_STEP, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class UpTo(NamedTuple):
    """The error of a chain up to one stage, and the standard error of that number."""

    error: float
    sigma: float


def errors_up_to(
    stages: abc.Sequence[tuple[NDArray[np.uint8], Geometry]],
    errors: abc.Sequence[float],
    sample: int = FEW,
) -> list[UpTo]:
    """The error of the chain up to each of its stages."""
    if len(stages) < 2 or sum(errors) < _SMALL or max(errors) >= 1.0:
        return [UpTo(compound_error(errors[: end + 1]), 0.0) for end in range(len(errors))]
    prints = _sample(sample)
    reports = np.zeros(sample, dtype=np.int64)
    chain_errors: list[UpTo] = []
    expected = 0.0
    for (vector, geometry), error in zip(stages, errors, strict=True):
        reports += kernels.find([vector], [geometry], prints)
        expected += error
        chain_errors.append(
            _regressed(np.bincount(reports), expected) if chain_errors else UpTo(error, 0.0)
        )
    return chain_errors


def _sample(size: int) -> NDArray[np.uint64]:
    """So many random fingerprints, the same ones each time.

    Not by numpy.random: its first use imports it, and an interrupt in the middle of that is lost.
    """
    mixed = np.arange(_SEED, _SEED + 2 * size, dtype=np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return (mixed ^ (mixed >> np.uint64(31))).reshape(size, 2)


def _regressed(counts: NDArray[np.int64], expected: float) -> UpTo:
    """The mean of y, given that of x; counts[x] says how many of the sample x stages report."""
    size = float(counts.sum())
    x = np.arange(len(counts))
    mean_x, mean_y = float((x * counts).sum()) / size, 1.0 - float(counts[0]) / size
    off_x, off_y = x - mean_x, (x > 0) - mean_y
    spread = float((counts * off_x**2).sum())
    slope = float((counts * off_x * off_y).sum()) / spread if spread else 0.0
    left = float((counts * (off_y - slope * off_x) ** 2).sum())
    error = mean_y - slope * (mean_x - expected)
    return UpTo(min(1.0, max(0.0, error)), math.sqrt(left) / size)
