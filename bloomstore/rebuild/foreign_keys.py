"""Whether a source is that of the filter at all: some of its keys must be in it already.

A column too far to the left, numbers read as texts, or a database that is still empty would
replace every key by others, or by none: from then on each "no" would be wrong. So some keys of each
batch are asked of the old filter. If it had keys when the rebuild began, and knows no more of these
than chance explains, the rebuild is refused before the switch, unless other keys are meant.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from bloomstore.rebuild.source import Source
from bloomstore.rebuild.state import State
from bloomstore.store.filter import Filter

SAMPLE_KEYS = 1000  # of each batch: a tenth of a millisecond
_FEW = 100  # with fewer keys one that is known is enough
_GUESSING = 0.5  # error of a filter whose answers say nothing


def sample(old: Filter, keys: Any, state: State) -> None:
    """Asks the old filter for the first keys of a batch, and counts."""
    if not hasattr(keys, "__getitem__"):
        return
    found = old.may_contain_many(keys[:SAMPLE_KEYS])
    state.asked += len(found)
    state.known += int(found.sum())


def why_foreign(old: Filter, source: Source, state: State) -> str:
    """Why the source seems to be that of something else; "" if it does not."""
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
