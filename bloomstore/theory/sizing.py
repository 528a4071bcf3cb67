"""From "so many keys at this error" to slice bits, hashes and the fill at which a vector is full.

Cheat sheet (the symbols of this package; the documents use others)

    n   distinct keys                       P   target error of a vector (or of a whole filter)
    m   bits of one slice                   p   fill: share of set bits, 0..1
    M   bits of one vector                  f0  tolerable error of one full vector (SFBF)
        M = k m sliced, M = m otherwise     r   tightening: P_(i+1) = r P_i (SBF)
    k   hashes                              s   growth: m_(i+1) = s m_i (SBF)
    X   set bits                            i   stage number, from 0

    sliced   p = 1 - (1 - 1/m)^n            P = p^k             k = log2(1/P) at p = 1/2
    plain    p = 1 - (1 - 1/M)^(k n)        P = p^k             M = n ln(1/P) / (ln 2)^2
    blocked  p = 1 - (1 - a/lines)^n        P = mixture over the loads of lines, 512 bits each

The rule. A vector is *full* when another key might lift it over its fill limit, the fill at which
its error is P; fullness is seen from the bits and never from the number of calls. The limit is not
1/2: k is whole, so P^(1/k) lies beside it. A fixed filter of capacity n must take n keys whatever
the luck of the hashes, so n keys are placed `margin` standard deviations and one key under the
limit: expected set bits + margin * sigma + k <= floor(fill_limit * vector_bits). At the default of
3.1 one filter in 1000 fills up early. A stage of a growing filter needs no such room: margin 0
means that the expected fill is at or under the limit (and that at least one key fits); the next
stage takes what is left over.

Invariants
  1. The error at `fill_limit` is at most P, also after rounding.
  2. `slice_bits` of a size is least: one slice bit (blocked: one line) less would break the rule.
  3. Equal arguments give equal sizes; a size, once on disk, is read from its header, not from here.

Not here: which layout to take, limits of a geometry, chains of stages (scalable, flexible).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from bloomstore.errors import SpecError
from bloomstore.theory.blocked import (
    LINE_BITS,
    blocked_error,
    blocked_error_at_fill,
    blocked_fill,
    blocked_keys_at_fill,
    blocked_variance,
)
from bloomstore.theory.vector import (
    ideal_hashes,
    keys_at_fill_plain,
    keys_at_fill_sliced,
    plain_fill,
    plain_variance,
    sliced_fill,
    sliced_variance,
)

# One normal deviate in 1000 is larger. 3.1 costs 0.3 % of the bits at 1e5 keys, 1 % each.
DEFAULT_MARGIN = 3.1
# As in layout/contract.py, which this layer may not import. A smaller P gets a lower fill limit.
MOST_HASHES = 64


class Sizing(NamedTuple):
    """The numbers of one vector: `capacity` keys stay under `fill_limit`, where the error is P."""

    slice_bits: int
    hashes: int
    capacity: int
    fill_limit: float


def round_up_power_of_two(bits: int) -> int:
    """Return the least power of two that is at least `bits` (for hash scheme H3)."""
    return 1 << (bits - 1).bit_length()


def fill_limit(k: int, P: float) -> float:
    """Return the fill at which a plain or sliced vector has error P: P^(1/k), rounded down.

    Source: SBF section 3.1, P = p^k. Exact for an observed fill of a plain vector; high for the
    mean fill of slices (prod p_j <= (mean p)^k), so safe. The result to the k is never above P.
    """
    p: float = P ** (1.0 / k)
    while p**k > P:
        p = math.nextafter(p, 0.0)
    return p


def blocked_fill_limit(lines: int, k: int, P: float) -> float:
    """Return the fill at which `blocked_error_at_fill` is P, by bisection from below.

    Lower than P^(1/k), since E[p^k] >= E[p]^k. The error at the result is never above P.
    """
    low, high = 0.0, P ** (1.0 / k)
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if blocked_error_at_fill(lines, k, middle) <= P:
            low = middle
        else:
            high = middle
    return low


# Sizes for keys --------------------------------------------------------------------


def size_sliced(
    n: int, P: float, *, hashes: int | None = None, margin: float = DEFAULT_MARGIN
) -> Sizing:
    """Return the least sliced vector for n keys at error P; see the rule in the module head.

    Within 1 % of n ln(1/P) / (ln 2)^2 bits for n >= 1e5 and P <= 0.1.
    """
    _check(n, P, hashes, margin)

    def size(k: int) -> Sizing:
        limit = fill_limit(k, P)
        guess = math.ceil(n / -math.log1p(-limit))
        bits = _least(lambda m: _sliced_fits(m, k, n, limit, margin), guess)
        return Sizing(bits, k, n, limit)

    return min(
        map(size, _hashes_near(P, hashes)), key=lambda s: (s.slice_bits * s.hashes, s.hashes)
    )


def size_plain(
    n: int, P: float, *, hashes: int | None = None, margin: float = DEFAULT_MARGIN
) -> Sizing:
    """Return the least plain vector for n keys at error P; see the rule in the module head.

    Within 1 % of n ln(1/P) / (ln 2)^2 bits for n >= 1e5 and P <= 0.1.
    """
    _check(n, P, hashes, margin)

    def size(k: int) -> Sizing:
        limit = fill_limit(k, P)
        guess = math.ceil(k * n / -math.log1p(-limit))
        bits = _least(lambda M: _plain_fits(M, k, n, limit, margin), guess)
        return Sizing(bits, k, n, limit)

    return min(map(size, _hashes_near(P, hashes)), key=lambda s: (s.slice_bits, s.hashes))


def size_blocked(
    n: int, P: float, *, hashes: int | None = None, margin: float = DEFAULT_MARGIN
) -> Sizing:
    """Return the least blocked vector for n keys at error P; see the rule in the module head.

    Bits per key at margin 0 and large n: 9.9 for 1 %, 15.5 for 0.1 %. `slice_bits` is a multiple
    of 512; a few keys take one line and, as ties go to fewer hashes, few hashes.
    """
    _check(n, P, hashes, margin)
    best_lines, best_hashes = 0, 0
    for k in [hashes] if hashes else _hashes_outwards(P):
        # The fill can never exceed P^(1/k): that bounds the lines from below, without a search.
        bound = -blocked_fill(1, k, 1) / math.expm1(math.log1p(-(P ** (1.0 / k))) / n)
        guess = max(1, math.ceil(bound * (1.0 - 1e-9)))
        if best_lines and (guess, k) > (best_lines, best_hashes):
            continue
        lines = _least(partial(_blocked_safe, k=k, n=n, P=P, margin=margin), guess)
        if not best_lines or (lines, k) < (best_lines, best_hashes):
            best_lines, best_hashes = lines, k
    limit = blocked_fill_limit(best_lines, best_hashes, P)
    while not _blocked_fits(best_lines, best_hashes, n, limit, margin):
        # Only by a rounding of the limit, which is good to 1e-13: one line up to 2^49 bits.
        best_lines += 1 + (best_lines >> 40)
        limit = blocked_fill_limit(best_lines, best_hashes, P)
    return Sizing(best_lines * LINE_BITS, best_hashes, n, limit)


# Keys for sizes --------------------------------------------------------------------


def fit_sliced(slice_bits: int, hashes: int, P: float, *, margin: float = 0.0) -> Sizing:
    """Return the most keys, by the same rule, that a sliced vector of this geometry takes.

    Margin 0: the keys expected at the fill limit, rounded down. The capacity can be 0.
    """
    _check(slice_bits, P, hashes, margin)
    limit = fill_limit(hashes, P)
    guess = math.floor(keys_at_fill_sliced(slice_bits, limit))
    keys = _most(lambda n: _sliced_fits(slice_bits, hashes, n, limit, margin), guess)
    return Sizing(slice_bits, hashes, keys, limit)


def fit_plain(slice_bits: int, hashes: int, P: float, *, margin: float = 0.0) -> Sizing:
    """Return the most keys, by the same rule, that a plain vector of this geometry takes.

    Margin 0: the keys expected at the fill limit, rounded down. The capacity can be 0.
    """
    _check(slice_bits, P, hashes, margin)
    limit = fill_limit(hashes, P)
    guess = math.floor(keys_at_fill_plain(slice_bits, hashes, limit))
    keys = _most(lambda n: _plain_fits(slice_bits, hashes, n, limit, margin), guess)
    return Sizing(slice_bits, hashes, keys, limit)


def fit_blocked(slice_bits: int, hashes: int, P: float, *, margin: float = 0.0) -> Sizing:
    """Return the most keys, by the same rule, that a blocked vector of this geometry takes.

    Margin 0: the keys expected at the fill limit, rounded down. The capacity can be 0.
    """
    _check(slice_bits, P, hashes, margin)
    lines, odd = divmod(slice_bits, LINE_BITS)
    if odd:
        raise SpecError(f"slice_bits must be a multiple of {LINE_BITS}, got {slice_bits}")
    limit = blocked_fill_limit(lines, hashes, P)
    guess = math.floor(blocked_keys_at_fill(lines, hashes, limit))
    keys = _most(lambda n: _blocked_fits(lines, hashes, n, limit, margin), guess)
    return Sizing(slice_bits, hashes, keys, limit)


# The rule --------------------------------------------------------------------------


def _below(bits: int, k: int, fill: float, variance: float, limit: float, margin: float) -> bool:
    """Say whether a vector of this expected fill and variance keeps the rule.

    Without a margin there must still be room for the first key, or a chain would grow for ever.
    """
    if margin == 0:
        return fill <= limit and k <= math.floor(limit * bits)
    return bits * fill + margin * math.sqrt(variance) + k <= math.floor(limit * bits)


def _sliced_fits(m: int, k: int, n: int, limit: float, margin: float) -> bool:
    return _below(k * m, k, sliced_fill(m, n), sliced_variance(m, k, n), limit, margin)


def _plain_fits(M: int, k: int, n: int, limit: float, margin: float) -> bool:
    return _below(M, k, plain_fill(M, k, n), plain_variance(M, k, n), limit, margin)


def _blocked_fits(lines: int, k: int, n: int, limit: float, margin: float) -> bool:
    fill, variance = blocked_fill(lines, k, n), blocked_variance(lines, k, n)
    return _below(lines * LINE_BITS, k, fill, variance, limit, margin)


def _blocked_safe(lines: int, k: int, n: int, P: float, margin: float) -> bool:
    """Say the same as `_blocked_fits`, but by the error, so that no fill limit is solved for."""
    bits = lines * LINE_BITS
    if margin == 0:
        return max(blocked_error(lines, k, n), blocked_error_at_fill(lines, k, k / bits)) <= P
    sigma = math.sqrt(blocked_variance(lines, k, n))
    highest = math.ceil(bits * blocked_fill(lines, k, n) + margin * sigma + k)
    return blocked_error_at_fill(lines, k, highest / bits) <= P


# Searching -------------------------------------------------------------------------


def _hashes_near(P: float, hashes: int | None) -> Iterable[int]:
    """Return the hashes to compare: those given, or both neighbours of log2(1/P)."""
    if hashes:
        return [hashes]
    ideal = ideal_hashes(P)
    return sorted({_allowed(math.floor(ideal)), _allowed(math.ceil(ideal))})


def _hashes_outwards(P: float) -> Iterable[int]:
    """Return all hashes that can be best for lines, the most promising first.

    Crowded lines like fewer hashes than log2(1/P): 9 for 0.1 %, 16 for one in a million. More
    than its ceiling never helped at any P tried (1e-1 to 1e-15); one more is asked for safety.
    """
    ideal = ideal_hashes(P)
    last = _allowed(math.ceil(ideal) + 1)
    return sorted(range(1, last + 1), key=lambda k: (abs(k - ideal), k))


def _allowed(k: int) -> int:
    return min(max(k, 1), MOST_HASHES)


def _least(fits: Callable[[int], bool], guess: int) -> int:
    """Return a number >= 1 that fits while its predecessor does not, searched from a guess."""
    low, high, step = 0, max(1, guess), 1  # 0 never fits
    if fits(high):
        while high - step > 0 and fits(high - step):
            high -= step
            step *= 2
        low = max(0, high - step)
    else:
        while not fits(high + step):
            high += step
            step *= 2
        low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def _most(fits: Callable[[int], bool], guess: int) -> int:
    """Return a number >= 0 that fits while its successor does not; 0 fits by definition."""
    low = max(0, guess)
    if low == 0 or fits(low):
        step = 1
        while fits(low + step):
            low += step
            step *= 2
        high = low + step
    else:
        high, low = low, 0
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _check(count: int, P: float, hashes: int | None, margin: float) -> None:
    """Refuse arguments for which there is no size."""
    if count < 1:
        raise SpecError(f"a vector is sized for at least 1 key and has at least 1 bit, got {count}")
    if not 0.0 < P < 1.0:
        raise SpecError(f"target error must be in (0, 1), got {P}")
    if hashes is not None and not 1 <= hashes <= MOST_HASHES:
        raise SpecError(f"hashes must be in 1..{MOST_HASHES}, got {hashes}")
    if not 0.0 <= margin < math.inf:
        raise SpecError(f"margin must be finite and not negative, got {margin}")
