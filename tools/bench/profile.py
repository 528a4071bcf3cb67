"""The steps behind the rows: each part of an add, a lookup and an opening, timed by itself.

    bulk add     fingerprints of the keys, insert of the fingerprints, and the rest: the store
    bulk miss    fingerprints, find; "fused" is one loop that does both
    single       the empty loop, an empty tuple (the price of `in`), and the lookup
    single hit   of every contestant, with the bits in the caches (near) and in memory (far): the
                 wait for a line is the same for all filters that need one
    reopen       the store, the filter, the checksums of its blocks, the first answer

Each step takes turns with the whole that it is part of; CPU time, best of all rounds. A missed goal
is missed in one of these steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import bloomstore
from bloomstore import Fixed, kernels
from bloomstore.keys import fingerprint_chunks, fingerprints
from bloomstore.segment.header import BLOCK_BYTES
from bloomstore.store.write.writer import TURN_KEYS
from tools.bench.measure import OURS, Prepare, once, take_turns
from tools.bench.peer_rows import SINGLE_KEYS, Keys
from tools.bench.peers import Maker, loop_in, make_ours

Step = tuple[str, str, float]


def profile(
    store: bloomstore.Store, folder: Path, peers: dict[str, Maker], keys: int, rounds: int
) -> list[Step]:
    """What is timed, its step, and nanoseconds per key (or per opening)."""
    found: list[Step] = []
    for kind in ("int", "str"):
        given = Keys(kind, keys, 1)
        forms: dict[str, tuple[Any, Any]] = {f"{kind} list": (given.present, given.absent)}
        if kind == "int":
            forms["int array"] = (given.present_array, given.absent_array)
        for name, (present, absent) in forms.items():
            found += bulk_steps(store, name, given, present, absent, rounds)
        found += single_steps(store, kind, given, rounds)
        found += hit_steps(store, folder, peers, given, rounds)
    return found + reopen_steps(folder, rounds)


def bulk_steps(
    store: bloomstore.Store, name: str, given: Keys, present: Any, absent: Any, rounds: int
) -> list[Step]:
    count = len(present)
    spec = Fixed(capacity=count, target_error=0.01)
    filled = store.create(f"{name} filled", spec, durability="process")
    filled.add_many(present)
    stage = filled._current().live.newest
    assert stage.segment is not None
    geometry, vector = stage.row.spec.geometry, stage.segment.vector
    prints = {"add": fingerprints(present), "miss": fingerprints(absent)}
    far = 1 << 60

    def hash_all(keys: Any) -> None:
        for _ in fingerprint_chunks(keys, 0, TURN_KEYS):
            pass

    def insert(into: Any) -> None:
        for start in range(0, count, TURN_KEYS):
            kernels.insert(into, geometry, prints["add"][start : start + TURN_KEYS], far, far)

    def whole_add() -> list[Callable[[], object]]:
        if "profile" in store:
            store.drop("profile")
        fresh = store.create("profile", spec, durability="process")
        return [partial(fresh.add_many, _fresh(given, present))]

    def only_insert() -> list[Callable[[], object]]:
        into = np.zeros_like(vector)
        into[:] = 0  # its pages are there, as those of a file are
        return [partial(insert, into)]

    add: dict[str, Prepare] = {
        "all": whole_add,
        "fingerprints": lambda: [partial(hash_all, _fresh(given, present))],
        "insert": only_insert,
    }
    miss: dict[str, Prepare] = {
        "all, fused": lambda: [partial(filled.may_contain_many, _fresh(given, absent))],
        "fingerprints": lambda: [partial(hash_all, _fresh(given, absent))],
        "find": once(partial(kernels.find, [vector], [geometry], prints["miss"])),
    }
    steps = _steps(f"bulk add, {name}", add, count, rounds)
    whole, *parts = (value for _, _, value in steps)
    steps.append((f"bulk add, {name}", "left: the store", whole - sum(parts)))
    steps += _steps(f"bulk miss, {name}", miss, count, rounds)
    store.drop("profile")
    store.drop(f"{name} filled")
    return steps


def single_steps(store: bloomstore.Store, kind: str, given: Keys, rounds: int) -> list[Step]:
    spec = Fixed(capacity=len(given.present), target_error=0.01)
    seen = store.create(f"single {kind}", spec, durability="process")
    seen.add_many(given.present)
    contestants: dict[str, Prepare] = {}
    absent = given.absent[:SINGLE_KEYS]

    def asks(bloom: Any) -> Prepare:
        return lambda: [partial(loop_in(bloom), given.fresh(absent))]

    contestants["the empty loop"] = lambda: [partial(_loop, given.fresh(absent))]
    contestants["in an empty tuple"] = asks(())
    contestants["all"] = asks(seen)
    steps = _steps(f"single miss, {kind}", contestants, len(absent), rounds)
    store.drop(f"single {kind}")
    return steps


def hit_steps(
    store: bloomstore.Store, folder: Path, peers: dict[str, Maker], given: Keys, rounds: int
) -> list[Step]:
    """The same hits where the bits are in the caches, and where they must come from memory.

    Near: the lines of a thousand keys, which were asked for just before. Far: other memory was read
    since then; the keys themselves are looked at once more.
    """
    steps: list[Step] = []
    other = np.ones(1 << 23)
    makers = {OURS: make_ours(store), **peers}
    asked = {"near": given.present[:1000], "far": given.present[:10_000]}
    for error in (0.01, 0.001):
        entries = {
            who: make(len(given.present), error, given.kind, folder) for who, make in makers.items()
        }
        for entry in entries.values():
            entry.add_many(given.present)
        best = {(who, place): 1e9 for who in entries for place in asked}
        for _ in range(4 * rounds):
            for who, place in random.sample(list(best), len(best)):
                keys = given.fresh(asked[place])
                entries[who].each_in(given.fresh(asked[place]))
                if place == "far":
                    other.sum()
                _loop(keys)
                begin = time.process_time()
                entries[who].each_in(keys)
                taken = (time.process_time() - begin) / len(keys) * 1e9
                best[who, place] = min(best[who, place], taken)
        name = f"single hit, {given.kind} {error:g}"
        steps += [(name, f"{who}, {place}", taken) for (who, place), taken in best.items()]
        for entry in entries.values():
            entry.drop()
    return steps


def _loop(keys: list[Any]) -> None:
    for _ in keys:
        pass


def reopen_steps(folder: Path, rounds: int, keys: int = 10_000_000) -> list[Step]:
    path = folder / "profile reopen"
    array = np.random.default_rng(4).integers(0, 1 << 62, keys, dtype=np.int64)
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=keys, target_error=0.01)).add_many(array)
    best = dict.fromkeys(("the store", "the filter", "its checksums alone", "first answer"), 1e9)
    for _ in range(4 * rounds):
        marks = [time.process_time()]
        store = bloomstore.open(path)
        marks.append(time.process_time())
        seen = store["seen"]
        marks.append(time.process_time())
        segment = seen._current().live.newest.segment
        assert segment is not None
        blocks = np.arange(segment.header.blocks)
        marks.append(time.process_time())
        kernels.block_checksums(segment.vector, bytes(24), BLOCK_BYTES, blocks)
        marks.append(time.process_time())
        assert int(array[0]) in seen
        marks.append(time.process_time())
        store.close()
        spans = [end - begin for begin, end in pairwise(marks)]
        for name, taken in zip(best, [spans[0], spans[1], spans[3], spans[4]], strict=True):
            best[name] = min(best[name], taken)
    return [(f"reopen, {keys:.0e} keys", name, taken * 1e9) for name, taken in best.items()]


def print_profile(steps: list[Step]) -> None:
    title = ""
    for name, step, nanoseconds in steps:
        if name != title:
            print(name)
            title = name
        large = nanoseconds >= 1e5
        shown = f"{nanoseconds / 1e6:8.2f} ms" if large else f"{nanoseconds:8.1f} ns"
        print(f"    {step:38} {shown}")


def _steps(name: str, contestants: dict[str, Prepare], keys: int, rounds: int) -> list[Step]:
    timings = take_turns(contestants, rounds)
    return [(name, step, timing.best / keys * 1e9) for step, timing in timings.items()]


def _fresh(given: Keys, keys: Any) -> Any:
    return given.fresh(keys) if isinstance(keys, list) else keys
