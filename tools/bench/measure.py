"""Timing side by side, and the row that a comparison ends in.

Contestants take turns in every round. CPU time is compared, the best of all rounds: a busy machine
slows both sides of a ratio, and it can only slow them, so the least time is nearest to the truth.
The order is drawn anew for every part, because a contestant that always came after the same other
one would always find the caches as that one leaves them. Rows that wait for a disk compare elapsed
time, in the same turns.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# Prepares one measurement outside the clock and gives back what is timed, in parts.
Prepare = Callable[[], Sequence[Callable[[], object]]]


@dataclass(frozen=True)
class Timing:
    """Seconds of one contestant: for each part, round after round.

    A part is short, so that most of them meet a quiet moment in some round; the sum of their best
    is the time that all of it takes when nobody disturbs.
    """

    seconds: list[list[float]]

    @property
    def best(self) -> float:
        return sum(map(min, self.seconds))

    @property
    def median(self) -> float:
        return sum(map(statistics.median, self.seconds))


def take_turns(
    contestants: dict[str, Prepare], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, Timing]:
    """Times every contestant once per round, part by part, in an order drawn for each part."""
    names = list(contestants)
    draw = random.Random(1)
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in range(rounds):
        calls = {name: contestants[name]() for name in draw.sample(names, len(names))}
        gc.collect()
        gc.disable()
        for part in range(len(calls[names[0]])):
            for name in draw.sample(names, len(names)):
                call = calls[name][part]
                begin = clock()
                call()
                taken = clock() - begin
                if number == 0:
                    seconds[name].append([])
                seconds[name][part].append(taken)
        gc.enable()
    return {name: Timing(values) for name, values in seconds.items()}


def once(call: Callable[[], object]) -> Prepare:
    """Something that is timed in one part and needs no preparation."""
    return lambda: [call]


@dataclass
class Row:
    """One comparison: ours against the best of the others, with the goal it has to meet.

    `ratio` is ours / best peer. A goal on the ratio has unit "x"; other units (ms, bits, error,
    MB) are goals on our own `value`. persisting: the ratio to the best of those peers whose answers
    another process can use.
    """

    name: str
    detail: str
    unit: str = "ns/key"
    ours: float = 0.0
    peer: str = ""
    theirs: float | None = None
    ratio: float | None = None
    median_ratio: float | None = None
    persisting: float | None = None
    goal: float | None = None
    goal_on: str = "ratio"
    all: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def verdict(self) -> str:
        measured = self.ratio if self.goal_on == "ratio" else self.ours
        if self.goal is None or measured is None:
            return ""
        return "ok" if measured <= self.goal else "MISS"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


OURS = "bloomstore"


def row_of(
    name: str,
    detail: str,
    timings: dict[str, Timing],
    keys: int,
    goal: float | None,
    *,
    persisting: frozenset[str] = frozenset(),
    scale: float = 1e9,
    unit: str = "ns/key",
    note: str = "",
) -> Row:
    """The row for timings of the same number of keys; ours is named bloomstore."""
    row = Row(name, detail, unit=unit, goal=goal, note=note)
    row.all = {who: timing.best / keys * scale for who, timing in timings.items()}
    row.ours = row.all[OURS]
    peers = {who: value for who, value in row.all.items() if who != OURS}
    if peers:
        row.peer = min(peers, key=lambda who: peers[who])
        row.theirs = peers[row.peer]
        row.ratio = row.ours / row.theirs
        medians = [timing.median for who, timing in timings.items() if who != OURS]
        row.median_ratio = timings[OURS].median / min(medians)
        kept = [value for who, value in peers.items() if who in persisting]
        if kept:
            row.persisting = row.ours / min(kept)
    return row
