"""A chain of growing vectors whose errors tighten, so that their sum never passes the target (SBF).

Stage i has error P_i = P0 r^i, slices of m_i = m0 s^i bits, k_i = ceil(log2(1/P_i)) slices. The
promise P holds for ever: the errors of infinitely many stages add up to P0 / (1 - r) = P.

In: target error P of the whole filter, tightening r (0 < r < 1), growth s (>= 1). Out: the numbers
of a stage, of a chain, and the curves of the paper's figures 1 to 6. The paper calls a stage full
at fill 1/2, and so do the functions here; `sizing` uses the slightly different fill P_i^(1/k_i).

Two kinds of hashes: whole (rounded up, what a filter has) and real (k_i = log2(1/P_i)); the latter
only where the paper's claim needs it (figures 4 and 6), and the docstring says so.

Not here: bits (sizing gives the slice bits of one stage), when to grow (filters).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from bloomstore.theory.vector import LN2, ideal_hashes, optimal_bits, optimal_hashes


class Totals(NamedTuple):
    """The keys of a chain whose last stage is full, and its bits over those of one vector."""

    keys: float
    bits: int
    ratio: float


# One stage -------------------------------------------------------------------------


def first_error(P: float, r: float) -> float:
    """Return the error of stage 0: P0 = P (1 - r).

    Source: SBF section 4, P <= P0 / (1 - r). Safe: the compound error stays below P.
    """
    return P * (1.0 - r)


def stage_error(P0: float, r: float, i: int) -> float:
    """Return the error of stage i: P0 r^i.

    Source: SBF section 4. For 0 < r < 1.
    """
    return P0 * r**i


def stage_hashes(P_i: float) -> int:
    """Return the slices of a stage of error P_i: ceil(log2(1/P_i)), at least 1.

    Source: SBF sections 4 and 4.2. Rounding up keeps the error at fill 1/2 at or under P_i.
    """
    return optimal_hashes(P_i)


def stage_slice_bits(m0: int, s: float, i: int) -> int:
    """Return the slice bits of stage i: m0 s^i, rounded up.

    Source: SBF section 4.1. Exact for whole s; for others to the 53 bits of a float.
    """
    return m0 * int(s) ** i if s == int(s) else math.ceil(m0 * s**i)


def stage_capacity(m: float, p: float = 0.5) -> float:
    """Return the keys of a stage with slices of m bits that is full at fill p: -m ln(1 - p).

    Source: SBF section 4.1, m ln 2 at fill 1/2. High by the share 1/(2m), about a third of a key;
    `vector.keys_at_fill_sliced` is exact.
    """
    return -m * math.log1p(-p)


# The chain -------------------------------------------------------------------------


def compound_error(errors: Iterable[float]) -> float:
    """Return the error of a chain of stages: 1 - prod(1 - P_i).

    Source: SBF section 4. Exact for independent stages; at most the sum of the errors.
    """
    logs = 0.0
    for error in errors:
        if error >= 1.0:
            return 1.0
        logs += math.log1p(-error)
    return abs(math.expm1(logs))  # never -0.0


def totals(P: float, r: float, s: float, m0: int, stages: int) -> Totals:
    """Return keys, bits and relative space of a chain whose `stages` stages are all full.

    Source: SBF sections 4 and 4.1 (the end of the curve in figure 1). The static filter of the
    ratio has n ln(1/P) / (ln 2)^2 bits.
    """
    keys, bits = 0.0, 0
    for i in range(stages):
        m = stage_slice_bits(m0, s, i)
        keys += stage_capacity(m)
        bits += m * stage_hashes(stage_error(first_error(P, r), r, i))
    return Totals(keys, bits, bits / optimal_bits(keys, P))


def stages_for_growth(growth: float, s: float) -> int:
    """Return the stages that hold `growth` times the keys of stage 0.

    Source: SBF figure 3; least l with 1 + s + ... + s^(l-1) >= growth. For s >= 1, growth >= 1.
    """
    held, stages = 0.0, 0
    while held < growth:
        held += s**stages
        stages += 1
    return stages


# The figures -----------------------------------------------------------------------


def space(P: float, r: float, s: float, m0: int, n: float) -> int:
    """Return the bits of all stages that exist when n keys were added.

    Source: SBF figure 1 (r = 1/2, m0 = 128, P = 1e-6, s = 1 and 2). A staircase: a new stage
    exists from the first key on that it takes.
    """
    bits, held, i = 0, 0.0, 0
    while i == 0 or held < n:
        m = stage_slice_bits(m0, s, i)
        bits += m * stage_hashes(stage_error(first_error(P, r), r, i))
        held += stage_capacity(m)
        i += 1
    return bits


def relative_space(P: float, r: float, s: float, growth: float) -> float:
    """Return the space over that of a static filter when the set is `growth` times stage 0.

    Source: SBF figures 2 and 5. Scale-free (slices are not rounded), whole hashes.
    """
    first = first_error(P, r)
    stages = range(stages_for_growth(growth, s))
    cells = sum(s**i * stage_hashes(stage_error(first, r, i)) for i in stages)
    return cells / optimal_bits(growth * LN2, P)


def average_space(P: float, r: float, s: float, growth: float) -> float:
    """Return the mean space from the empty to the final set, over a static filter for the latter.

    Source: SBF figure 4: the mean over the number of keys. Scale-free, real hashes.
    """
    cells = held = area = 0.0
    for i in range(stages_for_growth(growth, s)):
        cells += s**i * ideal_hashes(stage_error(first_error(P, r), r, i))
        taken = min(s**i, growth - held)
        area += cells * taken
        held += taken
    return area / growth / optimal_bits(growth * LN2, P)


def best_tightening(P: float, s: float, growth: float) -> float:
    """Return the r of least `average_space`, to three digits.

    Source: SBF figure 6. Does not depend on P (SBF section 4.2), because hashes are real here;
    whole hashes move it a little, which tools/compare/growth.py shows. For growth > 1.
    """
    low, high = 0.001, 0.999
    while high - low > 0.0005:
        third = (high - low) / 3.0
        left, right = low + third, high - third
        if average_space(P, left, s, growth) < average_space(P, right, s, growth):
            high = right
        else:
            low = left
    return round((low + high) / 2.0, 3)
