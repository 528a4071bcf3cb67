"""One blocked vector: every key sets its k bits inside one line of 512 bits, a cache line.

Lines get unequal numbers of keys, and a crowded line is wrong more often than a sparse one is
right: the error is a mixture over the loads of the lines, always above that of a plain vector of
equal fill: 1.22 times at k = 7 and 1.73 times at k = 10 when half full. (The shorter estimate gives
1.17 and 1.6: it takes n = bits ln 2 / k, which fills a little less than half, and leaves out the
spread of set bits among lines of equal load. Simulation confirms the numbers here.)

In: lines, hashes (k), distinct keys (n), fill (p), set bits (X). Out: floats. The model: the
line is uniform, its k positions are uniform and independent with replacement (k of 512).

Invariants
  1. Every sum has positive terms only, so nothing cancels; relative errors stay near 1e-12.
  2. Any n and any number of lines cost at most a few thousand terms: the mixture is walked
     outwards from its mode by ratios of neighbours. (Terms by lgamma would be wrong in the third
     digit at n = 1e12, where lgamma is 2.7e13.)
  3. The table of occupancies is replaced as a whole, never changed: threads may only waste work.

Not here: which k and how many lines to take (sizing).
"""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from operator import mul

LINE_BITS = 512

_TINY = 1e-18  # relative size of the terms at which a sum ends
# A cut row of the table loses this share per throw; (X/512)^64 can magnify it at most 1e7 times.
_CUT = 1e-30
_STAY = [x / LINE_BITS for x in range(LINE_BITS + 2)]  # x occupied cells stay x
_MOVE = [(LINE_BITS + 1 - x) / LINE_BITS for x in range(LINE_BITS + 2)]  # x-1 become x
# From here on two unset cells in one line have a chance of 2e-9, and one term is enough.
_TABLE_THROWS = 8192
# From here on exp(-throws/512) * 64 < 1e-17: a line is wrong with certainty, to the last digit.
_SATURATED_THROWS = 22_300

# Row t: (x of the first entry, chances of x, x+1, ... occupied cells after t throws).
_Row = tuple[int, "array[float]"]
_rows: tuple[_Row, ...] = ((0, array("d", [1.0])),)


def _occupancy(throws: int) -> _Row:
    """Return the distribution of occupied cells of one line; extends the table when needed."""
    global _rows
    if throws >= len(_rows):
        rows = list(_rows)
        low, chances = rows[-1][0], list(rows[-1][1])
        while len(rows) <= throws + 128:
            chances = [
                stay * same + move * fewer
                for stay, same, move, fewer in zip(
                    _STAY[low:], [*chances, 0.0], _MOVE[low:], [0.0, *chances], strict=False
                )
            ]
            while chances[-1] < _CUT:
                chances.pop()
            skip = next(x for x, chance in enumerate(chances) if chance >= _CUT)
            del chances[:skip]
            low += skip
            rows.append((low, array("d", chances)))
        _rows = tuple(rows)
    return _rows[throws]


@lru_cache(maxsize=256)
def _powers(k: int) -> tuple[float, ...]:
    """Return (x/512)^k for x = 0..512."""
    return tuple((x / LINE_BITS) ** k for x in range(LINE_BITS + 1))


@lru_cache(maxsize=1 << 16)
def line_error(k: int, load: int, power: int = 0) -> float:
    """Return the error of one line that holds `load` keys: E[(X/512)^k] after load*k throws.

    Source: definition; the distribution of X by a dynamic program over the throws, shared by all
    k. Exact to about 1e-12, relative; beyond 8192 throws low by less than 3e-11. With `power`
    another moment of the fill in place of the k-th.
    """
    throws, power = k * load, power or k
    if throws >= _SATURATED_THROWS:
        return 1.0
    if throws >= _TABLE_THROWS:
        unset = LINE_BITS * math.exp(throws * math.log1p(-1.0 / LINE_BITS))
        return 1.0 - unset * _hit(power)
    low, chances = _occupancy(throws)
    return math.fsum(map(mul, chances, _powers(power)[low:]))


def _hit(k: int, cells: int = 1) -> float:
    """Return the chance that a key of this line sets at least one of `cells` given bits."""
    return -math.expm1(k * math.log1p(-cells / LINE_BITS))


def _mixture(lines: int, k: int, n: int, power: int = 0) -> float:
    """Return the mean of `line_error` over a load of law binomial(n, 1/lines)."""
    if lines == 1:
        return line_error(k, n, power)
    if n * k > 4 * _SATURATED_THROWS * lines:
        return 1.0  # the chance of a load under a quarter of the mean is below 1e-60 there
    mode = min(n, (n + 1) // lines)
    weight = weights = 1.0
    errors = line_error(k, mode, power)
    for load in range(mode, n):
        weight *= (n - load) / ((load + 1) * (lines - 1))
        term = weight * line_error(k, load + 1, power)
        weights += weight
        errors += term
        if weight < _TINY and term < _TINY * errors:
            break
    weight = 1.0
    for load in range(mode, 0, -1):
        weight *= load * (lines - 1) / (n - load + 1)
        weights += weight
        errors += weight * line_error(k, load - 1, power)
        if weight < _TINY:
            break
    return errors / weights


def blocked_error(lines: int, k: int, n: float) -> float:
    """Return the error of a blocked vector that holds n keys.

    Source: definition, a mixture by the binomial law of the loads (a Poisson law is its limit).
    Exact for whole n; linear between whole numbers.
    """
    whole = math.floor(n)
    part = n - whole
    error = _mixture(lines, k, whole)
    return error if part == 0 else (1.0 - part) * error + part * _mixture(lines, k, whole + 1)


def blocked_moment(lines: int, k: int, n: float, power: int) -> float:
    """Return E[fill^power] over the lines of a vector that holds n keys.

    By the same mixture as the error, which is the k-th moment; n is rounded down.
    """
    return _mixture(lines, k, math.floor(n), power)


def blocked_mean_error(lines: int, k: int, n: float) -> float:
    """Return the mean of the error while n keys are added, from the empty vector on.

    Simpson's rule on 16 intervals: the error grows like a power of at most k of the keys, smooth
    enough for four digits up to k = 16.
    """
    steps = 16
    errors = [blocked_error(lines, k, n * i / steps) for i in range(steps + 1)]
    inner = 4.0 * sum(errors[1:steps:2]) + 2.0 * sum(errors[2:steps:2])
    return (errors[0] + inner + errors[steps]) / (3.0 * steps)


def blocked_fill(lines: int, k: int, n: float) -> float:
    """Return the expected fill: 1 - (1 - a/lines)^n, a = 1 - (511/512)^k.

    Source: a key spares a given bit unless it chooses its line and hits it. Exact.
    """
    return 0.0 if n == 0 else -math.expm1(n * math.log1p(-_hit(k) / lines))


def blocked_keys_at_fill(lines: int, k: int, p: float) -> float:
    """Return the keys after which fill p is expected: the exact inverse of `blocked_fill`."""
    return math.inf if p >= 1.0 else math.log1p(-p) / math.log1p(-_hit(k) / lines)


def distinct_keys_blocked(lines: int, k: int, X: float) -> float:
    """Return the distinct keys that X set bits in all lines tell of.

    Source: `blocked_fill`, solved for the keys at fill X / (512 lines). Slightly high, as for the
    other layouts; inf when all bits are set.
    """
    return blocked_keys_at_fill(lines, k, X / (LINE_BITS * lines))


def blocked_error_at_fill(lines: int, k: int, p: float) -> float:
    """Return the error at the number of keys for which fill p is expected.

    A little high for a vector that was filled until p was *observed*: stopping at a fill takes
    out part of the spread. With one line that error is p^k, and this is E[fill^k] >= p^k.
    """
    return 1.0 if p >= 1.0 else blocked_error(lines, k, blocked_keys_at_fill(lines, k, p))


def blocked_variance(lines: int, k: int, n: float) -> float:
    """Return the variance of the set bits of all lines after n keys. Exact, not only a bound.

    Source: indicators of unset bits. A key spares two given bits of one line with the chance
    1 - a2/lines, a2 = 1 - (510/512)^k, and of two lines with 1 - 2a/lines; keys are independent.
    """
    bits = LINE_BITS * lines
    hit, hit_pair = _hit(k) / lines, _hit(k, 2) / lines
    unset = math.exp(n * math.log1p(-hit))
    # Chance that both are unset, over unset^2, minus 1; in the form that does not cancel.
    spare = (1.0 - hit) ** 2
    together = math.expm1(n * math.log1p((2.0 * hit - hit_pair - hit * hit) / spare))
    apart = math.expm1(n * math.log1p(-hit * hit / spare)) if lines > 1 else 0.0
    pairs = (LINE_BITS - 1) * together + (bits - LINE_BITS) * apart
    return max(0.0, bits * unset * (1.0 - unset) + bits * unset * unset * pairs)


def blocked_standard_error(lines: int, k: int, n: float) -> float:
    """Return the standard error of `distinct_keys_blocked` at n keys.

    Source: first-order propagation of `blocked_variance`. Good while dozens of bits are unset.
    """
    if n == 0:
        return 0.0
    log_spare = math.log1p(-_hit(k) / lines)
    slope = -LINE_BITS * lines * math.exp(n * log_spare) * log_spare
    return math.inf if slope == 0.0 else math.sqrt(blocked_variance(lines, k, n)) / slope
