"""Counts of a guard's answers in this process, and of the queries and time that they saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bloomstore.sql.answer import Answer

MOST_REASONS = 50


@dataclass(slots=True)
class Metrics:
    """One guard. Counts are not exact when threads race for them: they are for people."""

    absent: int = 0  # ABSENT answers, except those counted in the next line
    skipped_gets: int = 0
    skipped_selects: int = 0
    maybe: int = 0  # MAYBE answers, except those counted in the next two lines
    true_positives: int = 0
    false_positives: int = 0
    disagreements: int = 0
    deleted: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    asked_seconds: float = 0.0

    def count(self, answer: Answer) -> None:
        """Counts one answer of a lookup other than a `get`."""
        if answer is Answer.ABSENT:
            self.absent += 1
        elif answer is Answer.MAYBE:
            self.maybe += 1
        else:
            self.count_unknown(answer.reason)

    def count_many(self, *, absent: int, maybe: int) -> None:
        """Counts the answers of many lookups at once."""
        self.absent += absent
        self.maybe += maybe

    def count_get(self, was_there: bool) -> None:
        """Counts a `get` that was sent after MAYBE."""
        if was_there:
            self.true_positives += 1
        else:
            self.false_positives += 1

    def count_time(self, seconds: float) -> None:
        """Adds the time that one such `get` took."""
        self.asked += 1
        self.asked_seconds += seconds

    def count_unknown(self, reason: str, count: int = 1) -> None:
        """Counts UNKNOWN by reason; a limited number of them, because some quote the value."""
        if reason not in self.unknown and len(self.unknown) >= MOST_REASONS:
            reason = "other reasons"
        self.unknown[reason] += count

    def summary(self) -> dict[str, Any]:
        """The counts as `plugin.stats()` gives them."""
        return {
            "absent": self.absent + self.skipped_gets,
            "maybe": self.maybe + self.true_positives + self.false_positives,
            "unknown": dict(self.unknown),
            "true_positives": self.true_positives,
            "false_positives": self.false_positives,
            "observed_error": self.observed_error,
            "queries_saved": self.queries_saved,
            "seconds_saved": self.seconds_saved,
            "disagreements": self.disagreements,
        }

    @property
    def observed_error(self) -> float | None:
        """The share of absent keys that the filter reported as MAYBE, as seen by get().

        Other queries are not included: whether they returned rows is not known here.
        """
        known = self.skipped_gets + self.false_positives
        return self.false_positives / known if known else None

    @property
    def queries_saved(self) -> int:
        """Queries that were not sent: of get(), and of statements whose keys were all absent."""
        return self.skipped_gets + self.skipped_selects

    @property
    def seconds_saved(self) -> float:
        """Queries saved, at the mean time of the gets that were sent after a MAYBE."""
        return self.queries_saved * self.asked_seconds / self.asked if self.asked else 0.0
