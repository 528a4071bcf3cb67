"""Rows against the peers: single and bulk, adds and lookups, a grown filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bloomstore
from bloomstore import Scalable
from tools.bench.measure import OURS, Prepare, Row, Timing, once, row_of, take_turns
from tools.bench.peers import PERSISTING, Entry, Maker, make_ours

GOALS = {
    "single hit": 0.9, "single miss": 0.9, "single add": 1.5,
    "bulk add": 0.8, "bulk miss": 0.25, "bulk hit": 0.4,
    "bulk add array": 0.8, "bulk miss array": 0.2, "bulk hit array": 0.3,
    "grown miss": 0.1,
}  # fmt: skip
GROWN = ("grown miss", "grown error", "grown bits at 10x", "grown bits full")
BITS_AT_10X = 22.0
BITS_FULL = 15.5
SINGLE_KEYS = 200_000
BULK_KEYS = 2_000_000
PARTS = 10


@dataclass(frozen=True)
class Setting:
    """What one run measures."""

    store: bloomstore.Store
    folder: Path
    peers: dict[str, Maker]
    keys: int
    rounds: int
    wanted: Callable[[str], bool]
    full_growth: bool


class Keys:
    """Different random keys: `present` were added, `absent` were not.

    A str is made anew before every measurement, as if it had just been read from somewhere:
    Python keeps the hash of a str inside it, so whoever uses hash() would only pay for it once.
    """

    def __init__(self, kind: str, count: int, seed: int) -> None:
        self.kind = kind
        numbers = np.random.default_rng(seed).integers(0, 1 << 61, 2 * count, dtype=np.int64)
        self.present_array = numbers[:count] * 2
        self.absent_array = numbers[count:] * 2 + 1
        self.present = self._listed(self.present_array)
        self.absent = self._listed(self.absent_array)

    def _listed(self, array: Any) -> list[Any]:
        numbers: list[int] = array.tolist()
        return [f"user:{number}" for number in numbers] if self.kind == "str" else numbers

    def fresh(self, keys: list[Any]) -> list[Any]:
        return [key[:5] + key[5:] for key in keys] if self.kind == "str" else keys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def peer_rows(setting: Setting, kind: str, error: float) -> Iterator[Row]:
    """Every row against the peers for one kind of keys and one target error."""
    keys = Keys(kind, setting.keys, 1)
    makers = {OURS: make_ours(setting.store), **setting.peers}
    detail = f"{kind} {error:g}, {setting.keys:.0e}"
    rows = [name for name in GOALS if name != "grown miss" and setting.wanted(name)]
    if kind != "int":
        rows = [name for name in rows if "array" not in name]
    if any("hit" in name or "miss" in name for name in rows) or setting.wanted("error"):
        yield from lookup_rows(setting, makers, keys, error, detail, rows)
    if "single add" in rows:
        yield single_add(setting, makers, keys, error, detail)
    for name in ("bulk add", "bulk add array"):
        if name in rows:
            yield bulk_add(setting, makers, keys, error, detail, name)


def lookup_rows(
    setting: Setting,
    makers: dict[str, Maker],
    keys: Keys,
    error: float,
    detail: str,
    rows: list[str],
) -> Iterator[Row]:
    filled = {
        name: maker(setting.keys, error, keys.kind, setting.folder)
        for name, maker in makers.items()
    }
    for entry in filled.values():
        entry.add_many(keys.present)
    samples = {"hit": (keys.present, keys.present_array), "miss": (keys.absent, keys.absent_array)}
    for name in rows:
        if "hit" not in name and "miss" not in name:
            continue
        say(f"{name}, {detail}")
        listed, array = samples["hit" if "hit" in name else "miss"]
        count = min(setting.keys, SINGLE_KEYS if "single" in name else BULK_KEYS)
        timings = take_turns(
            {
                who: lookup(entry, name, keys, listed[:count], array[:count])
                for who, entry in filled.items()
            },
            setting.rounds,
        )
        yield row_of(name, detail, timings, count, GOALS[name], persisting=PERSISTING)
    if setting.wanted("error"):
        yield error_row(filled, keys, error, detail)
    for entry in filled.values():
        entry.drop()


def in_parts(call: Callable[[Any], object], keys: Any) -> list[Callable[[], object]]:
    """The call for each tenth of the keys; slices are made here, outside the clock.

    For rows of single keys only: a bulk row is about one call with all keys.
    """
    step = max(1, -(-len(keys) // PARTS))
    parts = [keys[start : start + step] for start in range(0, len(keys), step)]
    return [partial(call, part) for part in parts]


def lookup(entry: Entry, row: str, keys: Keys, listed: list[Any], array: Any) -> Prepare:
    if "array" in row:
        assert entry.find_array is not None
        return once(partial(entry.find_array, array))
    if "single" in row:
        return lambda: in_parts(entry.each_in, keys.fresh(listed))
    return lambda: [partial(entry.find_many, keys.fresh(listed))]


def error_row(filled: dict[str, Entry], keys: Keys, error: float, detail: str) -> Row:
    """Nobody is fast by being wrong: the share of absent keys reported, and bits per key."""
    absent = keys.absent[:BULK_KEYS]
    row = Row("error", detail, unit="error", goal=error * 1.05, goal_on="ours")
    bits = {}
    for who, entry in filled.items():
        row.all[who] = float(np.mean(np.asarray(entry.find_many(absent), dtype=bool)))
        bits[who] = entry.bits / len(keys.present)
    row.ours = row.all[OURS]
    row.note = "bits/key: " + ", ".join(f"{who} {value:.1f}" for who, value in bits.items())
    return row


def single_add(
    setting: Setting, makers: dict[str, Maker], keys: Keys, error: float, detail: str
) -> Row:
    """Into filters that are half full and never get more than they are made for."""
    name = "single add"
    say(f"{name}, {detail}")
    half = setting.keys // 2
    each = min(half // setting.rounds, SINGLE_KEYS)
    filled = {
        who: maker(setting.keys, error, keys.kind, setting.folder) for who, maker in makers.items()
    }
    parts: dict[str, Iterator[list[Any]]] = {}
    for who, entry in filled.items():
        entry.add_many(keys.present[:half])
        parts[who] = (
            keys.present[half + each * turn : half + each * (turn + 1)]
            for turn in range(setting.rounds)
        )

    def contestant(who: str) -> Prepare:
        def prepare() -> list[Callable[[], object]]:
            return in_parts(filled[who].each_add, keys.fresh(next(parts[who])))

        return prepare

    timings = take_turns({who: contestant(who) for who in filled}, setting.rounds)
    for entry in filled.values():
        entry.drop()
    return row_of(name, detail, timings, each, GOALS[name], persisting=PERSISTING)


def bulk_add(
    setting: Setting, makers: dict[str, Maker], keys: Keys, error: float, detail: str, name: str
) -> Row:
    """All keys into an empty filter made for them."""
    say(f"{name}, {detail}")
    made: dict[str, Entry] = {}

    def contestant(who: str) -> Prepare:
        def prepare() -> list[Callable[[], object]]:
            if who in made:
                made.pop(who).drop()
            entry = made[who] = makers[who](setting.keys, error, keys.kind, setting.folder)
            if "array" in name:
                add_array = entry.add_array
                assert add_array is not None
                return [partial(add_array, keys.present_array)]
            return [partial(entry.add_many, keys.fresh(keys.present))]

        return prepare

    timings = take_turns({who: contestant(who) for who in makers}, setting.rounds)
    for entry in made.values():
        entry.drop()
    return row_of(name, detail, timings, setting.keys, GOALS[name], persisting=PERSISTING)


def grown_rows(setting: Setting, kind: str, error: float) -> Iterator[Row]:
    """A filter that has grown to ten times what it was made for, against pybloom-live's."""
    detail = f"{kind} {error:g}"
    # pybloom-live takes 7 us for an add: ten million of them only when asked for.
    count = setting.keys if setting.full_growth else min(setting.keys, 1_000_000)
    say(f"grown miss, {detail}")
    keys = Keys(kind, count, 2)
    spec = Scalable(target_error=error, initial_capacity=count // 10)
    name = f"grown {kind} {error:g}"
    ours = setting.store.create(name, spec, durability="process")
    ours.add_many(keys.present)
    asked: dict[str, Callable[[Any], object]] = {OURS: ours.may_contain_many}
    samples = {OURS: count}
    bits = ours.stats().bits / count
    notes = [f"bits/key {bits:.1f}"]
    peer = _pybloom_live(count // 10, error)
    if peer is not None:
        for key in keys.present:
            peer.add(key)
        asked["pybloom-live"] = lambda now: [key in peer for key in now]
        samples["pybloom-live"] = 20_000
        peer_bits = sum(part.num_bits for part in peer.filters) / count
        sample = keys.absent[:50_000]
        wrong = sum(key in peer for key in sample) / len(sample)
        notes.append(f"pybloom-live: bits/key {peer_bits:.1f}, error {wrong:.4f}")

    def contestant(who: str) -> Prepare:
        def prepare() -> list[Callable[[], object]]:
            return [partial(asked[who], keys.fresh(keys.absent[: samples[who]]))]

        return prepare

    timings = take_turns({who: contestant(who) for who in asked}, setting.rounds)
    per_key = {
        who: Timing([[value / samples[who] for value in part] for part in timing.seconds])
        for who, timing in timings.items()
    }
    yield row_of("grown miss", detail, per_key, 1, GOALS["grown miss"], note="; ".join(notes))
    wrong = float(ours.may_contain_many(keys.absent).mean())
    yield Row("grown error", detail, unit="error", ours=wrong, goal=error * 1.05, goal_on="ours")
    goals = (BITS_AT_10X, BITS_FULL) if error == 0.01 else (None, None)
    yield Row(
        "grown bits at 10x", detail, unit="bits/key", ours=bits, goal=goals[0], goal_on="ours"
    )
    yield Row("grown bits full", detail, unit="bits/key", ours=_fill_up(ours), goal=goals[1],
              goal_on="ours")  # fmt: skip
    setting.store.drop(name)


def _fill_up(ours: bloomstore.Filter) -> float:
    """Bits per key at the moment when the last stage is full."""
    stages = len(ours.stats().stages)
    rng = np.random.default_rng(3)
    least = float("inf")
    step = max(1, ours.stats().stages[-1].capacity // 200)
    while True:
        ours.add_many(rng.integers(-(1 << 62), 0, step, dtype=np.int64))
        now = ours.stats()
        if len(now.stages) > stages:
            return least
        least = now.bits / now.keys


def _pybloom_live(capacity: int, error: float) -> Any:
    try:
        import pybloom_live
    except ImportError:
        return None
    return pybloom_live.ScalableBloomFilter(capacity, error)
