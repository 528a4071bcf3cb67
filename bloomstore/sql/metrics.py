"""Counts of what a guard answered and what that was worth, in this process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Metrics:
    """One guard. Counts are not exact when threads race for them: they are for people."""

    absent: int = 0
    maybe: int = 0
    true_positives: int = 0
    false_positives: int = 0
    disagreements: int = 0
    deleted: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    asked_seconds: float = 0.0

    @property
    def observed_error(self) -> float | None:
        """The part of absent keys that the filter did not know to be absent."""
        known = self.absent + self.false_positives
        return self.false_positives / known if known else None

    @property
    def queries_saved(self) -> int:
        """Every ABSENT is a query that was not sent."""
        return self.absent

    @property
    def seconds_saved(self) -> float:
        """Queries saved, at the mean time of the queries that were sent after a MAYBE."""
        return self.absent * self.asked_seconds / self.asked if self.asked else 0.0
