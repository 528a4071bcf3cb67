"""Flipped bits in the catalog of a closed store: no key is lost and no process dies.

Each case flips one bit of a page that data.mdb uses, including meta pages and the free list. The
store was closed properly, or its writer was killed. A fresh process then reads, writes and checks.
"""

from __future__ import annotations

import collections
import sys
import time
from pathlib import Path

from tests.faults.flips import HARMLESS, Flips, make_store

OUTCOMES = ("ok", "maybe", "refused", "broken")


def torture(folder: Path, cases: int, seed: int, seconds: float) -> bool:
    """Runs the cases and prints; True when the promise was kept."""
    campaigns = []
    for number, killed in enumerate((False, True)):
        path = folder / ("killed" if killed else "closed")
        make_store(path, killed=killed)
        campaigns.append(Flips(path, seed * 2 + number))
    counts: dict[str, collections.Counter[str]] = {}
    broken: list[str] = []
    begin = last = time.monotonic()
    done = 0
    while done < cases and time.monotonic() < begin + seconds and len(broken) < 20:
        kind, where, found = campaigns[done % 2].one(folder / "case")
        worst = max("ok", *found, key=_severity)
        counts.setdefault(kind, collections.Counter())[OUTCOMES[_severity(worst)]] += 1
        if not found <= HARMLESS:
            broken.append(f"seed {seed}, case {done}: {kind}, {where}: {sorted(found - HARMLESS)}")
            print("VIOLATION", broken[-1], flush=True)
        done += 1
        if time.monotonic() > last + 10:
            last = time.monotonic()
            print(f"{last - begin:4.0f} s: {done} of {cases} flips, violations {len(broken)}")
            sys.stdout.flush()
    print(f"{'page':<22}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES))
    for kind, found_so in sorted(counts.items()):
        print(f"{kind:<22}" + "".join(f"{found_so[outcome]:>9}" for outcome in OUTCOMES))
    print(f"{done} flips, violations {len(broken)}")
    return not broken


def _severity(outcome: str) -> int:
    return OUTCOMES.index(outcome) if outcome in HARMLESS else OUTCOMES.index("broken")
