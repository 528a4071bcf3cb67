"""How a Flexible filter chooses its expanding speed: a fixed sequence, or the arrival rate.

A speed (lambda in the SFBF paper) of 1 means a vector as long as the baseline, every further 1
doubles it. In: the arrival rates of the stages so far, out: the speed of the next one. Everything
here is frozen and can be written into a catalog row, so the choice is the same after a reopen:
a predictor is a value and not a function for that reason.

Not here: clocks (the store measures arrival times), vector sizes (families).
"""

from __future__ import annotations

import collections.abc as abc
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bloomstore.errors import SpecError
from bloomstore.theory.flexible import expanding_speed

# 2^39 times the baseline: far beyond what a disk holds, and small enough for exact arithmetic.
MAX_SPEED = 40
# The most that a speed may rise from one stage to the next: the fastest sequence of the paper
# (1, 3, 5, 7) quadruples every vector, and so follows a rate that grows 1000 times in five stages.
MOST_DOUBLINGS = 2


@dataclass(frozen=True, slots=True)
class Sequence:
    """Speeds given one by one, stage 0 first; the last one repeats.

    Sequence([1, 2, 3]) gives vectors of 1, 2, 4, 4, 4, ... times the baseline.
    """

    follows_rates: ClassVar[bool] = False

    speeds: tuple[int, ...]

    def __init__(self, speeds: abc.Iterable[int]) -> None:
        try:
            speeds = tuple(speeds)
        except TypeError:
            raise SpecError(f"expanding speeds are a list of ints, got {speeds!r}") from None
        object.__setattr__(self, "speeds", speeds)
        if not speeds:
            raise SpecError("a sequence of expanding speeds needs at least one element")
        for speed in speeds:
            if type(speed) is not int or not 1 <= speed <= MAX_SPEED:
                raise SpecError(f"an expanding speed is an int in 1..{MAX_SPEED}, got {speed!r}")

    def speed(self, stage: int, rates: abc.Sequence[float]) -> int:
        """Speed of this stage, whatever the rates."""
        return self.speeds[min(stage, len(self.speeds) - 1)]

    def to_dict(self) -> dict[str, Any]:
        """Plain form, for catalog rows and `--json`."""
        return {"speeds": list(self.speeds)}


@dataclass(frozen=True, slots=True)
class LastValue:
    """Predicts that keys arrive as fast as in the last stage."""

    def predict(self, rates: abc.Sequence[float]) -> float:
        """Rate expected for the next stage."""
        return rates[-1]


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """Predicts the mean rate of the last `window` stages."""

    window: int = 3

    def __post_init__(self) -> None:
        _check_window(self.window, 1)

    def predict(self, rates: abc.Sequence[float]) -> float:
        """Rate expected for the next stage."""
        recent = rates[-self.window :]
        return sum(recent) / len(recent)


@dataclass(frozen=True, slots=True)
class LinearTrend:
    """Predicts by the least-squares line through the last `window` stages, never below zero."""

    window: int = 4

    def __post_init__(self) -> None:
        _check_window(self.window, 2)

    def predict(self, rates: abc.Sequence[float]) -> float:
        """Rate expected for the next stage."""
        recent = rates[-self.window :]
        count = len(recent)
        if count == 1:
            return recent[0]
        middle = (count - 1) / 2
        mean = sum(recent) / count
        rise = sum((x - middle) * (rate - mean) for x, rate in enumerate(recent))
        run = sum((x - middle) ** 2 for x in range(count))
        return max(0.0, mean + rise / run * (count - middle))


Predictor = LastValue | MovingAverage | LinearTrend
PREDICTORS: dict[str, type[Predictor]] = {
    "last": LastValue,
    "average": MovingAverage,
    "trend": LinearTrend,
}


@dataclass(frozen=True, slots=True)
class ByRate:
    """Speed from the arrival rate that the predictor expects, relative to the first stage's.

    A stage is at most four times as long as the one before it, whatever the rates: one burst, or
    one wrong clock, costs no more. `max_speed` bounds it for ever: 16 is 2^15 baselines.
    """

    follows_rates: ClassVar[bool] = True

    predictor: Predictor = LastValue()
    max_speed: int = 16

    def __post_init__(self) -> None:
        if not isinstance(self.predictor, LastValue | MovingAverage | LinearTrend):
            raise SpecError(
                f"predictor must be LastValue, MovingAverage or LinearTrend, got {self.predictor!r}"
            )
        if type(self.max_speed) is not int or not 1 <= self.max_speed <= MAX_SPEED:
            raise SpecError(f"max_speed must be an int in 1..{MAX_SPEED}, got {self.max_speed!r}")

    def speed(self, stage: int, rates: abc.Sequence[float]) -> int:
        """Speed of this stage from the rates of the stages before it, as far as they are known."""
        speed = 1
        for count in range(1, len(rates) + 1):
            wanted = expanding_speed(self.predictor.predict(rates[:count]), rates[0])
            speed = min(self.max_speed, wanted, speed + MOST_DOUBLINGS)
        return speed

    def to_dict(self) -> dict[str, Any]:
        """Plain form, for catalog rows and `--json`."""
        name = next(name for name, kind in PREDICTORS.items() if type(self.predictor) is kind)
        return {"predictor": name, "max_speed": self.max_speed} | asdict(self.predictor)


Expansion = Sequence | ByRate


def expansion_from_dict(plain: abc.Mapping[str, Any]) -> Expansion:
    """Inverse of `to_dict`. Raises SpecError for anything else."""
    if "speeds" in plain:
        return Sequence(plain["speeds"])
    kind = PREDICTORS.get(str(plain.get("predictor")))
    if kind is None:
        raise SpecError(f"unknown expansion {dict(plain)!r}")
    windowed = {"window": plain["window"]} if "window" in plain else {}
    return ByRate(kind(**windowed), plain.get("max_speed", 16))


def _check_window(window: object, least: int) -> None:
    if type(window) is not int or window < least:
        raise SpecError(f"window must be an int of at least {least}, got {window!r}")
