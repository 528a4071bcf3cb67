"""Whether a source belongs to the filter at all: the filter must have some of its keys.

The wrong column, numbers read as texts, or a database that is still empty would replace every key
by others, or by none: from then on each "no" would be wrong. So the old filter is asked for some
keys of each batch. If it had keys when the rebuild began, and reports no more of these than chance
explains, the rebuild is refused before the switch, unless the caller asked for other keys.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from bloomstore.rebuild.source import Source
from bloomstore.rebuild.state import State
from bloomstore.store.filter import Filter

SAMPLE_KEYS = 1000  # of each batch: a tenth of a millisecond
_FEW = 100  # with fewer keys, one that the filter reports is enough
_GUESSING = 0.5  # error of a filter whose answers say nothing


def sample(old: Filter, keys: Any, state: State) -> None:
    """Asks the old filter for the first keys of a batch, and counts."""
    if not hasattr(keys, "__getitem__"):
        return
    found = old.may_contain_many(keys[:SAMPLE_KEYS])
    state.asked += len(found)
    state.known += int(found.sum())


def why_foreign(old: Filter, source: Source, state: State) -> str:
    """Why the source seems to belong to another filter; "" if it does not."""
    if not state.had:
        return ""
    had = f"filter {old.name!r} has {state.had:,}"
    if not state.rows:
        return f"{source.describe()} has no keys, {had}"
    error = old.stats().error_rate
    chance = state.asked * error
    by_chance = chance + 4 * sqrt(chance) if state.asked >= _FEW else 0
    if not state.asked or state.known > by_chance or error > _GUESSING:
        return ""
    return (
        f"of {state.asked:,} keys of {source.describe()} {state.known:,} are known, {had}: another"
        " column, or another type of keys?"
    )
