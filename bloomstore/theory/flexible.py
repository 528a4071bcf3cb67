"""A chain of plain vectors of equal load, each as long as the arrival of keys asks for (SFBF).

Every vector has the same k and the same load n_j / M_j, hence the same error f0 when full; vector
j is 2^(lambda_j - 1) times the baseline, where lambda_j >= 1 is its expanding speed. Nothing
tightens: the error grows with the number of extensions, and slowly only if there are few of them.

In: baseline bits M0 (a power of two), its capacity n0, hashes k, expanding speeds. Out: sizes,
errors, load factors. The fixed sequences of speeds of the paper (1, 2, 3, ..; 1, 3, 5, ..) are
growth policies and live with the families.

Not here: prediction of rates (any predictor will do), the shift query (hashing).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bloomstore.theory.scalable import compound_error


class LoadFactor(NamedTuple):
    """Bits per key of a chain lie between these two."""

    low: float
    high: float


def vector_bits(M0: int, speed: int) -> int:
    """Return the bits of a vector added at this expanding speed: 2^(speed - 1) M0.

    Source: SFBF algorithm 1, line 2. For speed >= 1; speed 1 is the baseline.
    """
    return M0 << (speed - 1)


def vector_capacity(n0: int, speed: int) -> int:
    """Return the keys of a vector added at this expanding speed: 2^(speed - 1) n0.

    Source: SFBF algorithm 1, line 3. The load is that of the baseline, exactly.
    """
    return n0 << (speed - 1)


def vector_error(M: float, k: int, n: float) -> float:
    """Return the error of one vector: (1 - e^(-k n / M))^k.

    Source: SFBF eq. 1. The approximation that depends on the load n/M only, which the paper needs;
    low by about the share k^2 / (2M) at fill 1/2. `vector.plain_error` is closer for small M.
    """
    return (-math.expm1(-k * n / M)) ** k


def flexible_error(
    M0: int, k: int, n0: float, extensions: int, last_bits: int, last_keys: float
) -> float:
    """Return the error after `extensions` extensions, the last vector holding `last_keys`.

    Source: SFBF eq. 3, 1 - (1 - f_full)^i (1 - f_last). Exact for independent vectors, with the
    approximation of `vector_error` in each.
    """
    full = vector_error(M0, k, n0)
    return compound_error([full] * extensions + [vector_error(last_bits, k, last_keys)])


def load_factor(M0: int, n0: float, last_bits: int, last_keys: float) -> LoadFactor:
    """Return bounds of the bits per key of a chain whose vectors but the last are full.

    Source: SFBF theorem 2, M0/n0 <= L <= M0/n0 + M_i/n_i. The upper one is inf while the last
    vector is empty.
    """
    low = M0 / n0
    return LoadFactor(low, low + last_bits / last_keys if last_keys else math.inf)


def expanding_speed(predicted_rate: float, first_rate: float) -> int:
    """Return the expanding speed for a predicted arrival rate: ceil(log2(r' / r0)) + 1, at least 1.

    Source: SFBF section 4.3; the lower end is the baseline's own speed. Rates that mean nothing
    (zero, negative, not finite: a clock that stood still or ran backwards) give 1. There is no
    upper end here: the caller caps the speed by the sizes that a vector may have.
    """
    if not (0.0 < predicted_rate < math.inf and 0.0 < first_rate < math.inf):
        return 1
    ratio = predicted_rate / first_rate
    if ratio == math.inf:  # then, and only then, a difference: log2(20) - log2(10) is not 1.0
        return math.ceil(math.log2(predicted_rate) - math.log2(first_rate)) + 1
    return 1 if ratio <= 1.0 else math.ceil(math.log2(ratio)) + 1
