"""A number with an interval: how this package gives everything that is not exact."""

from __future__ import annotations

from dataclasses import dataclass

# Two-sided 95 % of a normal distribution.
SIGMAS_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value that lies in low..high with the given confidence.

    `uncertain` warns that the value rests on too little to mean much: look at the interval only.
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95
    uncertain: bool = False

    def __str__(self) -> str:
        mark = ", uncertain" if self.uncertain else ""
        return f"{self.value:.6g} ({self.low:.6g} .. {self.high:.6g}, {self.confidence:.0%}{mark})"
