"""How many false positives are too many: the exact tail of the Poisson distribution.

A count of rare, independent events is binomial. Above its mean the Poisson distribution of the
same mean has the heavier tail (Anderson and Samuels 1967; for sums of unequal chances Hoeffding
1956), so a limit from here is never too low: a filter that keeps its promise fails with a chance
of at most DOUBT per assertion. Seeds are fixed: a test that passes once passes always.
"""

from __future__ import annotations

import math

DOUBT = 1e-6


def tail(count: int, mean: float) -> float:
    """The chance that a Poisson variable of this mean is at least `count`, for count > mean.

    Terms fall from the first on, so the sum is exact to rounding.
    """
    if count == 0:
        return 1.0
    if mean == 0.0:
        return 0.0
    term = math.exp(-mean + count * math.log(mean) - math.lgamma(count + 1))
    total = 0.0
    while term > total * 1e-17:
        total += term
        count += 1
        term *= mean / count
    return total


def most(mean: float, doubt: float = DOUBT) -> int:
    """The largest count that a promise of this mean allows: more has a chance below `doubt`."""
    low = math.ceil(mean)
    high = math.ceil(mean + 10.0 * math.sqrt(mean) + 50.0)
    while high - low > 1:
        middle = (low + high) // 2
        if tail(middle, mean) < doubt:
            high = middle
        else:
            low = middle
    return low


def power(mean: float, excess: float, doubt: float = DOUBT) -> float:
    """The chance that an error of `excess` times the promise is seen."""
    limit = most(mean, doubt)
    raised = mean * excess
    if limit + 1 > raised:
        return tail(limit + 1, raised)
    # Below the mean the terms rise: sum what is left of them instead.
    term = math.exp(-raised + limit * math.log(raised) - math.lgamma(limit + 1))
    below = 0.0
    for count in range(limit, -1, -1):
        below += term
        term *= count / raised
    return 1.0 - below
