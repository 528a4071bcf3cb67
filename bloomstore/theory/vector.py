"""One plain or sliced vector: its fill, its error, its capacity, and the keys its bits tell of.

In: bits of the vector (M) or of one slice (m), hashes (k), distinct keys (n), set bits (X), fill
(p), errors (P, f0). Out: floats; rounding is the caller's, who knows the safe direction.

The model is independent, uniform positions: plain throws k*n balls into M cells, sliced throws n
balls into each of k times m cells. Keys that were reported before set no bit, so they count for
nothing here: n is always distinct keys.

Invariants
  1. Sizes up to 2^48 bits lose nothing: all powers go through log1p and expm1.
  2. Sliced formulas are exact expectations, because the slices are independent. `plain_error` is
     not (see there).

Not here: blocked vectors (blocked), whole sizes (sizing).
"""

from __future__ import annotations

import math

LN2 = math.log(2.0)


def _log_miss(cells: float) -> float:
    """Return ln(1 - 1/cells), the log-chance that one throw misses one cell; -inf for one cell."""
    return -math.inf if cells == 1 else math.log1p(-1.0 / cells)


def _occupied(cells: float, throws: float) -> float:
    """Return the expected share of occupied cells."""
    return 0.0 if throws == 0 else -math.expm1(throws * _log_miss(cells))


def _throws(cells: float, occupied: float) -> float:
    """Return the throws after which `occupied` cells are expected (inverse of `_occupied`)."""
    if occupied >= cells:
        return math.inf
    return 0.0 if occupied == 0 else math.log1p(-occupied / cells) / _log_miss(cells)


def _occupancy_variance(cells: float, throws: float) -> float:
    """Return the variance of the number of occupied cells.

    The textbook form subtracts numbers of the order cells^2 and is noise beyond 2^26 cells. Here
    the covariance of two empty cells is q^2 * expm1(throws * ln(1 - 1/(cells-1)^2)), which is the
    same number, since (1 - 2/c) / (1 - 1/c)^2 = 1 - 1/(c-1)^2.
    """
    if cells == 1 or throws == 0:
        return 0.0
    empty = math.exp(throws * _log_miss(cells))
    pair = -1.0 if cells == 2 else math.expm1(throws * math.log1p(-1.0 / (cells - 1.0) ** 2))
    return max(0.0, cells * empty * (1.0 - empty) + cells * (cells - 1.0) * empty * empty * pair)


# Fill and error --------------------------------------------------------------------


def plain_fill(M: int, k: int, n: float) -> float:
    """Return the expected fill of a plain vector: 1 - (1 - 1/M)^(k n).

    Source: survey eq. 1; slides, "False positive probability". Exact for every M >= 1, n >= 0.
    """
    return _occupied(M, k * n)


def plain_error(M: int, k: int, n: float) -> float:
    """Return the error of a plain vector: (1 - (1 - 1/M)^(k n))^k.

    Source: survey eq. 2; SFBF eq. 1. A little low, never high: the true value is E[fill^k], this
    is E[fill]^k (Bose et al., cited by SBF as [13]). Some 5 % low at M = 15, k = 3, and 0.2 % low
    at M = 10 000, k = 10.
    """
    return plain_fill(M, k, n) ** k


def sliced_fill(m: int, n: float) -> float:
    """Return the expected fill of each slice: 1 - (1 - 1/m)^n.

    Source: SBF section 3.1. Exact for every m >= 1, n >= 0.
    """
    return _occupied(m, n)


def sliced_error(m: int, k: int, n: float) -> float:
    """Return the error of a sliced vector: p^k.

    Source: SBF section 3.1. Exact: the slices are independent, so the mean of the product is the
    product of the means.
    """
    return sliced_fill(m, n) ** k


def rejection_probes(p: float) -> float:
    """Return a bound on the expected probes that reject an absent key: 1 / (1 - p).

    Source: survey eq. 3. An upper bound for any number of hashes; inf when every bit is set.
    """
    return math.inf if p >= 1.0 else 1.0 / (1.0 - p)


# The optimum -----------------------------------------------------------------------


def ideal_hashes(P: float) -> float:
    """Return the hashes of least space, not rounded: log2(1/P).

    Source: SBF section 3.2. For 0 < P <= 1.
    """
    return -math.log2(P)


def optimal_hashes(P: float) -> int:
    """Return the whole hashes for which fill 1/2 keeps the error at or under P: ceil(log2(1/P)).

    Source: SBF section 3.2 and table 1. At least 1. Rounding up keeps the promise at fill 1/2 and
    leaves room: the fill may go to P^(1/k) >= 1/2.
    """
    return max(1, math.ceil(ideal_hashes(P)))


def optimal_bits(n: float, P: float) -> float:
    """Return the least bits for n keys at error P: n ln(1/P) / (ln 2)^2.

    Source: SBF section 3.2, solved for M; notes, `optimal_bloomfilter`. For large M. Low for whole
    hashes: at most 0.4 % when P <= 0.1.
    """
    return -n * math.log(P) / LN2**2


def optimal_capacity(M: float, P: float) -> float:
    """Return the most keys that M bits hold at error P: M (ln 2)^2 / ln(1/P).

    Source: SBF section 3.2 and table 1 (which rounds down). High for whole hashes and small M.
    """
    return M * LN2**2 / -math.log(P)


def capacity_for_error(M: float, k: int, f0: float) -> float:
    """Return the keys at which a plain vector of M bits and k hashes has error f0.

    Source: SFBF eq. 2, n0 = -M ln(1 - f0^(1/k)) / k. It takes (1 - 1/M)^x for e^(-x/M), so it is
    high by the share 1/(2M): less than one key wherever n0 < 2M. Inf where f0 is within rounding
    of 1.
    """
    fill = f0 ** (1.0 / k)
    return math.inf if fill >= 1.0 else -M * math.log1p(-fill) / k


# From fill back to keys ------------------------------------------------------------


def keys_at_fill_sliced(m: int, p: float) -> float:
    """Return the keys after which a slice is expected at fill p: ln(1 - p) / ln(1 - 1/m).

    Source: SBF section 3.1, solved for n. Exact inverse of `sliced_fill`; inf at p = 1.
    """
    return _throws(m, p * m)


def keys_at_fill_plain(M: int, k: int, p: float) -> float:
    """Return the keys after which a plain vector is expected at fill p.

    Source: survey eq. 1, solved for the keys. Exact inverse of `plain_fill`; inf at p = 1.
    """
    return _throws(M, p * M) / k


def distinct_keys_sliced(m: int, X: float) -> float:
    """Return the distinct keys that X set bits in a slice of m tell of.

    Source: `sliced_fill`, solved for the keys: n* = ln(1 - X/m) / ln(1 - 1/m). X may be the mean
    over slices.
    High by about variance / (2 m (1 - p)^2), a fraction of a key at fill 1/2; inf when all are set.
    """
    return _throws(m, X)


def distinct_keys_plain(M: int, k: int, X: float) -> float:
    """Return the distinct keys that X set bits in a plain vector of M tell of.

    Source: `plain_fill`, solved for the keys: n* = ln(1 - X/M) / (k ln(1 - 1/M)). Direction as for
    slices; inf when all bits are set.
    """
    return _throws(M, X) / k


# Spread ----------------------------------------------------------------------------


def plain_variance(M: int, k: int, n: float) -> float:
    """Return the variance of the set bits of a plain vector after n keys.

    Source: the classical occupancy problem, k*n throws into M cells. Exact.
    """
    return _occupancy_variance(M, k * n)


def sliced_variance(m: int, k: int, n: float) -> float:
    """Return the variance of the set bits of all k slices after n keys.

    Source: the classical occupancy problem; the slices are independent, so variances add. Exact.
    """
    return k * _occupancy_variance(m, n)


def plain_standard_error(M: int, k: int, n: float) -> float:
    """Return the standard error of `distinct_keys_plain` at n keys.

    Source: first-order propagation of `plain_variance` through the estimate. Good while dozens of
    bits are unset; inf when none is expected to be.
    """
    return _standard_error(M, k * n) / k


def sliced_standard_error(m: int, k: int, n: float) -> float:
    """Return the standard error of `distinct_keys_sliced` on the mean of k slices, at n keys.

    Source: first-order propagation of the occupancy variance; about sqrt(m (e^t - t - 1) / k) with
    t = n/m. Good while dozens of bits of a slice are unset.
    """
    return _standard_error(m, n) / math.sqrt(k)


def _standard_error(cells: int, throws: float) -> float:
    """Return the standard error of the throws told from occupied cells."""
    if throws == 0:
        return 0.0
    miss = _log_miss(cells)
    slope = -cells * math.exp(throws * miss) * miss if cells > 1 else 0.0
    return math.inf if slope == 0.0 else math.sqrt(_occupancy_variance(cells, throws)) / slope
