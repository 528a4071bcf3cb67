"""Measure what a layout costs and what it gives: bits per key, lookups from memory and from disk.

    python -m tools.compare.layouts [--keys 1e6] [--target-errors 1e-2 1e-3] [--json]

Filters of every layout are made in one store on a real disk, filled with integers and asked:

    bits      per key, when `keys` keys are in (Fixed: its whole vector; Scalable: all its stages)
    full      Scalable: bits per key when its last stage is full, by the stages' sizes
    warm      nanoseconds per key of a batch, everything in the page cache, for keys that were added
              (hit) and that were not (miss); includes the fingerprints, which are also timed alone
    cold      single lookups after the files were thrown out of the page cache: page faults that
              waited for the disk, and microseconds, per lookup. Active stages beyond 64 MB are
              not verified at first use (smaller ones are, and are in memory after that); blocks
              of sealed ones (Scalable) are, when a lookup first needs them, and that is part of
              the figure
    first     milliseconds until the first process that opens the evicted store has its first
              answer: it verifies an active stage of up to 64 MB

Layouts take turns in every round; `best` is the quickest round, `median` the middle one. Compare
within one run only: machines are busy, and ratios to `sliced` are printed for that. Cold figures
mean something when the file is beyond 64 MB and has many more pages than lookups * hashes (10^8
keys).

Eviction is checked with mincore: a run whose files stay in memory says so and ends with status 1.
Linux only. Writes to a folder under --folder, removed at the end; progress goes to stderr.
Exit status: 0, 1 if files could not be evicted, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import collections.abc as abc
import contextlib
import ctypes
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bloomstore
from bloomstore import FilterSpec, Fixed, Scalable, kernels
from bloomstore.keys import fingerprint_chunks
from bloomstore.layout.layouts import Layout

LAYOUTS: tuple[Layout, ...] = ("plain", "sliced", "blocked")
REFERENCE: Layout = "sliced"
TARGET_ERRORS = (1e-2, 1e-3, 1e-4, 1e-6)
FAMILIES = ("fixed", "scalable")
FIRST_ABSENT = 1 << 40
PAGE = mmap.PAGESIZE


class NotEvicted(Exception):
    """The kernel kept pages that it was asked to drop."""


@dataclass(slots=True)
class Row:
    """One filter and everything measured on it. Lists have one entry per round."""

    family: str
    layout: Layout
    target_error: float
    keys: int
    hashes: int = 0
    stages: int = 0
    pages: int = 0
    bits_per_key: float = 0.0
    full_bits_per_key: float = 0.0
    warm_hit_ns: list[float] = field(default_factory=list)
    warm_miss_ns: list[float] = field(default_factory=list)
    cold_hit_us: list[float] = field(default_factory=list)
    cold_miss_us: list[float] = field(default_factory=list)
    cold_hit_faults: list[float] = field(default_factory=list)
    cold_miss_faults: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.family} {self.layout} {self.target_error:g}"

    @property
    def spec(self) -> FilterSpec:
        if self.family == "fixed":
            return Fixed(capacity=self.keys, target_error=self.target_error, layout=self.layout)
        return Scalable(target_error=self.target_error, layout=self.layout)


MEASURES = (
    "warm_hit_ns",
    "warm_miss_ns",
    "cold_hit_faults",
    "cold_hit_us",
    "cold_miss_faults",
    "cold_miss_us",
)


# Filling ---------------------------------------------------------------------------


def fill(path: Path, row: Row) -> None:
    """Makes the filter and adds the keys 0, 1, 2, ..."""
    with bloomstore.open(path, durability="process") as store:
        seen = store.create(row.name, row.spec)
        step = 1_000_000
        for start in range(0, row.keys, step):
            seen.add_many(np.arange(start, min(start + step, row.keys)))
        stats = seen.stats()
        row.stages = len(stats.stages)
        row.bits_per_key = stats.bits / row.keys
        row.pages = sum(-(-stage.bits // (8 * PAGE)) for stage in stats.stages)
        planned = [seen.spec.stage(index, ()) for index in range(row.stages)]
        row.hashes = max(stage.geometry.hashes for stage in planned if stage is not None)
        capacity = sum(stage.capacity for stage in planned if stage is not None)
        row.full_bits_per_key = stats.bits / capacity


# Warm ------------------------------------------------------------------------------


def samples(keys: int, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys that were added and keys that were not, in no order."""
    random = np.random.default_rng(seed)
    return (
        random.integers(0, keys, count, dtype=np.int64),
        random.integers(FIRST_ABSENT, FIRST_ABSENT << 8, count, dtype=np.int64),
    )


def measure_warm(path: Path, rows: abc.Sequence[Row], batch: int, rounds: int) -> float:
    """Times batches, layouts taking turns; returns the nanoseconds of the fingerprints alone."""
    hashing = []
    with bloomstore.open(path, read_only=True) as store:
        for number in range(-1, rounds):  # round -1 brings everything into memory
            for row in rows:
                seen = store[row.name]
                for keys, times in zip(
                    samples(row.keys, batch, number + 1),
                    (row.warm_hit_ns, row.warm_miss_ns),
                    strict=True,
                ):
                    began = time.perf_counter()
                    seen.may_contain_many(keys)
                    if number >= 0:
                        times.append((time.perf_counter() - began) / batch * 1e9)
            began = time.perf_counter()
            for _ in fingerprint_chunks(keys, 0, 65536):
                pass
            hashing.append((time.perf_counter() - began) / batch * 1e9)
    return min(hashing)


# Cold ------------------------------------------------------------------------------


def measure_cold(path: Path, rows: abc.Sequence[Row], lookups: int, rounds: int) -> None:
    """Times single lookups, each series after an eviction of all files, layouts taking turns."""
    for number in range(rounds):
        for row in rows:
            hits, misses = samples(row.keys, lookups, 1000 + number)
            for keys, times, faults in (
                (hits, row.cold_hit_us, row.cold_hit_faults),
                (misses, row.cold_miss_us, row.cold_miss_faults),
            ):
                evict(path)
                with open_elsewhere(path):
                    took, waited = ask_one_by_one(path, row.name, keys.tolist())
                times.append(took / lookups * 1e6)
                faults.append(waited / lookups)
            evict(path)
            began = time.perf_counter()
            ask_one_by_one(path, row.name, [0])
            row.first_ms.append((time.perf_counter() - began) * 1e3)


@contextlib.contextmanager
def open_elsewhere(path: Path) -> abc.Iterator[None]:
    """Another process has the store open, and none of its files mapped."""
    program = (
        "import sys, bloomstore\n"
        "with bloomstore.open(sys.argv[1], read_only=True): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        if not other.stdout.readline():
            raise RuntimeError(f"another process could not open {path}")
        yield
        other.stdin.close()


def ask_one_by_one(path: Path, name: str, keys: abc.Sequence[int]) -> tuple[float, int]:
    """Seconds and major faults of single lookups. The mapping ends with this function."""
    with bloomstore.open(path, read_only=True) as store:
        seen = store[name]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        began = time.perf_counter()
        for key in keys:
            key in seen  # noqa: B015
        took = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return took, after - before


def evict(path: Path) -> None:
    """Throws all segments out of the page cache. Nobody may have them mapped."""
    for file in (path / "segments").iterdir():
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.fsync(descriptor)  # dirty pages are never dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            kept, pages = resident_pages(descriptor)
        finally:
            os.close(descriptor)
        if kept > pages // 100:
            raise NotEvicted(f"{file}: {kept} of {pages} pages are still in memory")


def resident_pages(descriptor: int) -> tuple[int, int]:
    """Pages of the file in the page cache, and all of its pages (mincore)."""
    length = os.fstat(descriptor).st_size
    pages = -(-length // PAGE)
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    address = library.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    answer = ctypes.create_string_buffer(pages)
    try:
        if library.mincore(address, length, answer):
            raise OSError(ctypes.get_errno(), "mincore")
    finally:
        library.munmap(address, length)
    flags = np.frombuffer(answer.raw, np.uint8, pages)
    return int(np.count_nonzero(flags & 1)), pages


# Output ----------------------------------------------------------------------------


def table(rows: abc.Sequence[Row], hashing_ns: float) -> str:
    """The aligned table: best and median of each measure, then the ratios of the medians."""
    head = (
        f"{'family   layout   error':28}{'k':>3}{'stages':>7}{'bits':>7}{'full':>7}{'pages':>8}"
        f"{'hit':>14}{'miss':>14}  {'hit faults':>10}{'us':>7}  {'miss faults':>11}{'us':>7}"
        f"{'first ms':>10}"
    )
    lines = [
        f"{rows[0].keys:,} keys, {kernels.BACKEND} kernels, fingerprints alone {hashing_ns:.0f} ns",
        "",
        f"{'':28}{'':>30}  {'warm ns, best (median)':^27}  {'cold, median per lookup':^35}",
        head,
    ]
    for row in rows:
        warm = "".join(
            f"{f'{min(times):.0f} ({statistics.median(times):.0f})':>14}"
            for times in (row.warm_hit_ns, row.warm_miss_ns)
        )
        cold = [statistics.median(getattr(row, name)) for name in MEASURES[2:]]
        lines.append(
            f"{row.family:<9}{row.layout:<9}{row.target_error:<10g}{row.hashes:>3}{row.stages:>7}"
            f"{row.bits_per_key:>7.2f}{row.full_bits_per_key:>7.2f}{row.pages:>8}{warm}"
            f"  {cold[0]:>10.2f}{cold[1]:>7.1f}  {cold[2]:>11.2f}{cold[3]:>7.1f}"
            f"{statistics.median(row.first_ms):>10.1f}"
        )
    lines += ["", f"relative to {REFERENCE} (warm: best, cold: median)"]
    lines.append(
        f"{'':28}{'bits':>7}{'warm hit':>10}{'warm miss':>10}"
        f"{'faults hit':>12}{'us hit':>8}{'faults miss':>13}{'us miss':>9}"
    )
    for row in rows:
        ratios = relative(row, rows)
        lines.append(
            f"{row.family:<9}{row.layout:<9}{row.target_error:<10g}"
            + "".join(f"{ratio:>{width}.2f}" for ratio, width in zip(ratios, WIDTHS, strict=True))
        )
    return "\n".join(lines)


WIDTHS = (7, 10, 10, 12, 8, 13, 9)


def relative(row: Row, rows: abc.Sequence[Row]) -> list[float]:
    """Bits, then all measures, over those of the reference layout."""
    other = next(
        other
        for other in rows
        if (other.family, other.target_error, other.layout)
        == (row.family, row.target_error, REFERENCE)
    )
    ratios = [row.full_bits_per_key / other.full_bits_per_key]
    for name in MEASURES:
        middle = min if name.startswith("warm") else statistics.median
        ratios.append(middle(getattr(row, name)) / max(middle(getattr(other, name)), 1e-9))
    return ratios


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def count(text: str) -> int:
    """A whole number that may be written as 1e8."""
    number = float(text)
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"not a whole number of at least 1: {text}")
    return int(number)


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Parses the arguments, measures, prints the table."""
    parser = argparse.ArgumentParser(description="what layouts cost and give, measured")
    parser.add_argument("--keys", type=count, default=1_000_000)
    parser.add_argument("--target-errors", type=float, nargs="+", default=TARGET_ERRORS)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--batch", type=count, default=1_000_000, help="keys of a warm batch")
    parser.add_argument("--lookups", type=count, default=2000, help="single lookups of a cold run")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--cold-rounds", type=count, default=3)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print the rows as a JSON array")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    hashing_ns = float("inf")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for family in options.families:
            for target_error in options.target_errors:
                path = Path(folder) / f"{family} {target_error:g}"
                group = [Row(family, layout, target_error, options.keys) for layout in LAYOUTS]
                for row in group:
                    say(f"{row.name}: adding {row.keys:,} keys")
                    fill(path, row)
                say(f"{family} {target_error:g}: warm lookups")
                hashing_ns = min(
                    hashing_ns, measure_warm(path, group, options.batch, options.rounds)
                )
                say(f"{family} {target_error:g}: cold lookups")
                try:
                    measure_cold(path, group, options.lookups, options.cold_rounds)
                except NotEvicted as error:
                    say(f"cannot measure cold lookups: {error}")
                    return 1
                rows += group
    if options.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=1)
        print()
    else:
        print(table(rows, hashing_ns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
