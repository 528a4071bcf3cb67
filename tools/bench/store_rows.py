"""Rows about the store itself: opening, durable adds, the cost of its checks, threads, 10^8 keys.

Durable rows wait for the disk, so they compare elapsed time with bare LMDB commits in the same
folder; the two take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import lmdb
import numpy as np
from numpy.typing import NDArray

import bloomstore
from bloomstore import Fixed, kernels
from bloomstore.kernels import OneKey
from bloomstore.kernels import threads as kernel_threads
from bloomstore.keys import fingerprint_chunks
from tools.bench.measure import OURS, Prepare, Row, once, row_of, take_turns
from tools.bench.peer_rows import Keys, Setting, say

REOPEN_MILLISECONDS = 3.0
DURABLE_ADD = 1.5
DURABLE_MANY = 1.3
JOURNAL_ROW_BYTES = 64  # a journal row of one key
MANY = 10_000
LARGE = 100_000_000
LARGE_ROWS = ("large add", "large miss", "large add: memory", "large miss: memory",
              "large miss: error")  # fmt: skip
LARGE_GOAL = 0.5
LARGE_MEGABYTES = 64.0


def store_rows(setting: Setting, quick: bool) -> Iterator[Row]:
    rows: dict[tuple[str, ...], Callable[[], Iterator[Row]]] = {
        ("reopen",): lambda: reopen(setting, 1_000_000 if quick else 10_000_000),
        ("durable add", "durable add_many"): lambda: durable(setting, 40 if quick else 200),
        ("checks: bulk", "checks: single"): lambda: checks(setting),
        ("threads: two of a call", "threads: two callers", "threads: add"): lambda: threads(
            setting
        ),
    }
    for names, make in rows.items():
        if any(map(setting.wanted, names)):
            say(", ".join(names))
            yield from make()


def reopen(setting: Setting, keys: int) -> Iterator[Row]:
    """Open the store and ask one key: header, checksums of every block and set bits are checked."""
    rng = np.random.default_rng(4)
    array = rng.integers(0, 1 << 62, keys, dtype=np.int64)
    path = setting.folder / "reopen"
    with bloomstore.open(path) as store:
        store.create("seen", Fixed(capacity=keys, target_error=0.01)).add_many(array)
    key = int(array[0])

    def ours() -> None:
        store = bloomstore.open(path)
        assert key in store["seen"]
        opened.append(store)

    opened: list[bloomstore.Store] = []

    def prepare_ours() -> list[Callable[[], object]]:
        while opened:
            opened.pop().close()
        return [ours]

    contestants: dict[str, Prepare] = {OURS: prepare_ours}
    if "pybloomfiltermmap3" in setting.peers:
        import pybloomfilter

        file = str(setting.folder / "reopen.bloom")
        bloom = pybloomfilter.BloomFilter(keys, 0.01, file)
        bloom.update(array[:100_000].tolist())
        bloom.close()

        def theirs() -> None:
            bloom = pybloomfilter.BloomFilter.open(file)
            assert key in bloom

        contestants["pybloomfiltermmap3"] = once(theirs)
    timings = take_turns(contestants, 4 * setting.rounds)
    prepare_ours()
    row = row_of("reopen", f"{keys:.0e} keys", timings, 1, REOPEN_MILLISECONDS, scale=1e3,
                 unit="ms")  # fmt: skip
    row.goal_on = "ours"
    row.note = "the peer checks the magic number and the length only"
    yield row


def durable(setting: Setting, adds: int) -> Iterator[Row]:
    """A durable add against one LMDB commit of as many bytes; nobody can do with less."""
    path = setting.folder / "durable"
    bare = lmdb.open(str(setting.folder / "bare"), map_size=1 << 30, readahead=False)
    rng = np.random.default_rng(5)
    with bloomstore.open(path) as store:
        spec = Fixed(capacity=4_000_000, target_error=0.01)
        seen = store.create("seen", spec)
        quick = store.create("quick", spec, durability="process")
        sequence = iter(range(1 << 40))

        def commit(size: int) -> None:
            with bare.begin(write=True) as transaction:
                transaction.put(next(sequence).to_bytes(8, "big"), bytes(size))

        # Many in each round: the garbage collection before a round leaves cold caches behind.
        def add_each() -> list[Callable[[], object]]:
            return [partial(seen.add, int(key)) for key in rng.integers(0, 1 << 62, adds)]

        def commit_each() -> list[Callable[[], object]]:
            return [partial(commit, JOURNAL_ROW_BYTES)] * adds

        contestants: dict[str, Prepare] = {OURS: add_each, "bare LMDB commit": commit_each}
        timings = take_turns(contestants, 3, time.perf_counter)
        row = row_of("durable add", "int", timings, adds, DURABLE_ADD, scale=1e6, unit="us")
        yield _worse_of_both(row)

        def keys() -> NDArray[np.int64]:
            return rng.integers(0, 1 << 62, MANY, dtype=np.int64)

        def add_durably() -> list[Callable[[], object]]:
            return [partial(seen.add_many, keys())]

        def commit_and_add() -> list[Callable[[], object]]:
            array = keys()

            def run() -> None:
                commit(16 * MANY)
                quick.add_many(array)

            return [run]

        contestants = {OURS: add_durably, "bare LMDB commit + process add": commit_and_add}
        timings = take_turns(contestants, max(10, adds // 4), time.perf_counter)
        row = row_of("durable add_many", f"int x{MANY}", timings, 1, DURABLE_MANY, scale=1e6,
                     unit="us")  # fmt: skip
        yield _worse_of_both(row)
    bare.close()


def _worse_of_both(row: Row) -> Row:
    """The goal holds for the best and for the median.

    The median of a busy disk hides what we cost beside the sync, the best of a few shows luck.
    """
    assert row.ratio is not None
    assert row.median_ratio is not None
    row.note = f"goal on the worse of best ({row.ratio:.2f}) and median ({row.median_ratio:.2f})"
    row.ratio = max(row.ratio, row.median_ratio)
    return row


def checks(setting: Setting) -> Iterator[Row]:
    """What the store costs above the bare loops over the same bits. No goal: it is to be seen."""
    keys = Keys("int", setting.keys, 6)
    name = "checks"
    seen = setting.store.create(
        name, Fixed(capacity=setting.keys, target_error=0.01), durability="process"
    )
    seen.add_many(keys.present_array)
    chain = seen._current().live
    absent = keys.absent_array

    def bare_find() -> None:
        for prints in fingerprint_chunks(absent, 0, kernels.MAX_PRINTS_PER_CALL):
            kernels.find(chain.vectors, chain.geometries, prints)

    contestants = {
        OURS: once(lambda: seen.may_contain_many(absent)),
        "fingerprints and find": once(bare_find),
    }
    timings = take_turns(contestants, 2 * setting.rounds)
    yield row_of("checks: bulk", "int array", timings, len(absent), None)
    listed = keys.absent[:200_000]
    words = memoryview(bytearray(64)).cast("Q")
    alone: Any = OneKey(0)
    alone._point_at(words, chain.vectors, chain.geometries)
    alone._fast_generation = 0

    def each(bloom: Any) -> Callable[[], object]:
        def run() -> None:
            for key in listed:
                key in bloom  # noqa: B015

        return run

    if kernels.BACKEND == "compiled":
        contestants = {OURS: once(each(seen)), "the same without a store": once(each(alone))}
        timings = take_turns(contestants, 2 * setting.rounds)
        yield row_of("checks: single", "int", timings, len(listed), None)
    setting.store.drop(name)


def threads(setting: Setting) -> Iterator[Row]:
    """The same work by two threads and by one, elapsed: those of one call, and the caller's."""
    keys = Keys("int", max(setting.keys, 1_000_000), 7)
    name = "threads"
    spec = Fixed(capacity=len(keys.present), target_error=0.01)
    seen = setting.store.create(name, spec, durability="process")
    seen.add_many(keys.present_array)
    absent = keys.absent_array
    halves = [absent[: len(absent) // 2], absent[len(absent) // 2 :]]

    def ask_with(count: int, array: NDArray[np.int64]) -> None:
        kernel_threads.THREADS = count
        seen.may_contain_many(array)

    def two() -> None:
        kernel_threads.THREADS = 1
        workers = [threading.Thread(target=seen.may_contain_many, args=(half,)) for half in halves]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def add_with(count: int, given: Any) -> Prepare:
        def prepare() -> list[Callable[[], object]]:
            fresh = f"threads {count}"
            if fresh in setting.store:
                setting.store.drop(fresh)
            filled = setting.store.create(fresh, spec, durability="process")

            # Below the size from which a bulk load makes a file: threads do not write it faster.
            parts = range(0, len(given), 500_000)
            pieces = [given[start : start + 500_000] for start in parts]

            def add() -> None:
                kernel_threads.THREADS = count
                for piece in pieces:
                    filled.add_many(piece)

            return [add]

        return prepare

    one = once(partial(ask_with, 1, absent))
    usual = kernel_threads.THREADS
    pairs: list[tuple[str, str, Prepare, Prepare]] = [
        ("threads: two of a call", "int array", once(partial(ask_with, 2, absent)), one),
        ("threads: two callers", "int array", once(two), one),
        (
            "threads: add",
            "int array",
            add_with(2, keys.present_array),
            add_with(1, keys.present_array),
        ),
        ("threads: add", "int list", add_with(2, keys.present), add_with(1, keys.present)),
    ]
    for row_name, detail, by_two, by_one in pairs:
        contestants = {OURS: by_two, "one thread": by_one}
        timings = take_turns(contestants, 6 * setting.rounds, time.perf_counter)
        row = row_of(row_name, detail, timings, len(absent), None)
        row.note = "elapsed; wants two idle cores"
        yield row
    kernel_threads.THREADS = usual
    for left in (name, "threads 1", "threads 2"):
        setting.store.drop(left)


class AnonymousMemory:
    """The most anonymous memory that this process had in a block above what it began with."""

    def __enter__(self) -> Self:
        self.most = 0
        self._before = self._now()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.01):
            self.most = max(self.most, self._now() - self._before)

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0


def large_rows(setting: Setting, count: int = LARGE) -> Iterator[Row]:
    """10^8 keys of an array, against abloom, which gets them as lists of a million."""
    rng = np.random.default_rng(8)
    present = rng.integers(0, 1 << 61, count, dtype=np.int64)
    present *= 2
    name, detail = "large", f"int array {count:.0e}"
    seen = setting.store.create(
        name, Fixed(capacity=count, target_error=0.01), durability="process"
    )
    say(f"bulk add, {detail}")
    begin = time.process_time()
    with AnonymousMemory() as memory:
        seen.add_many(present)
    add_seconds = time.process_time() - begin
    beside = memory.most - seen.stats().bits // 8  # a bulk load makes the vector in memory
    yield Row("large add: memory", detail, unit="MB", ours=beside / 1e6, goal=LARGE_MEGABYTES,
              goal_on="ours", note="beside the vector")  # fmt: skip
    absent = present  # the same memory: present keys are even, absent ones odd
    absent += 1
    say(f"bulk miss, {detail}")
    begin = time.process_time()
    with AnonymousMemory() as memory:
        answers = seen.may_contain_many(absent)
    find_seconds = time.process_time() - begin
    yield Row("large miss: memory", detail, unit="MB", ours=(memory.most - len(answers)) / 1e6,
              goal=LARGE_MEGABYTES, goal_on="ours", note="beside the answers")  # fmt: skip
    yield Row("large miss: error", detail, unit="error", ours=float(answers.mean()),
              goal=0.0105, goal_on="ours")  # fmt: skip
    setting.store.drop(name)
    if "abloom (serializable)" not in setting.peers:
        return
    entry = setting.peers["abloom (serializable)"](count, 0.01, "int", setting.folder)
    absent -= 1
    add = find = 0.0
    say("the same with abloom")
    for action in ("add", "find"):
        for start in range(0, count, 1_000_000):
            chunk = present[start : start + 1_000_000]
            begin = time.process_time()
            listed = chunk.tolist()
            if action == "add":
                entry.add_many(listed)
                add += time.process_time() - begin
            else:
                entry.find_many(listed)
                find += time.process_time() - begin
        present += 1
    for row, ours, theirs in (
        ("large add", add_seconds, add), ("large miss", find_seconds, find),
    ):  # fmt: skip
        yield Row(
            row, detail, ours=ours / count * 1e9, peer=entry.name, theirs=theirs / count * 1e9,
            ratio=ours / theirs, persisting=ours / theirs, goal=LARGE_GOAL,
        )  # fmt: skip
