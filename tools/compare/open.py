"""Time and bytes read until a store is open: opening must not read the vectors.

    python -m tools.compare.open [--filters 100] [--keys 1e8] [--folder DIR]

Makes a store with that many keys in that many filters, drops it from the page cache, and opens it
in a fresh process. It prints milliseconds and bytes read from disk until the store was open, until
the first filter was there, and until the first answer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bloomstore
from bloomstore import Fixed
from tests.support.checkout import environment


def make(folder: Path, filters: int, keys: int) -> None:
    each = keys // filters
    with bloomstore.open(folder) as store:
        for number in range(filters):
            users = store.create(f"filter {number}", Fixed(capacity=each, target_error=0.01))
            users.add_many(np.arange(number * each, (number + 1) * each))
            print(f"\rfilter {number + 1} of {filters}", end="", file=sys.stderr)
    print(file=sys.stderr)


def evict(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read_bytes() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes"):
            return int(line.split()[1])
    return 0


def look(folder: Path) -> None:
    marks = []

    def mark(what: str) -> None:
        marks.append((what, time.perf_counter(), read_bytes()))

    mark("begin")
    store = bloomstore.open(folder, create=False)
    mark("store open")
    users = store["filter 7"]
    mark("first filter")
    found = int(users._number) and 5 in users
    mark(f"first answer ({'maybe' if found else 'absent'})")
    store.close()
    print(json.dumps(marks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=100)
    parser.add_argument("--keys", type=float, default=1e8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.look:
        look(args.look)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch) / "store"
        if not folder.exists():
            make(folder, args.filters, int(args.keys))
        size = sum(path.stat().st_size for path in (folder / "segments").iterdir())
        print(f"{args.filters} filters, {args.keys:.0e} keys, {size / 2**20:.0f} MiB of segments")
        for state in ("cold", "warm"):
            if state == "cold":
                evict(folder)
            command = [sys.executable, "-m", "tools.compare.open", "--look", folder]
            marks = json.loads(
                subprocess.run(command, check=True, capture_output=True, env=environment()).stdout
            )
            for (_, begin, before), (what, end, after) in itertools.pairwise(marks):
                read = (after - before) / 1024
                print(f"{state}: {what:24} {(end - begin) * 1e3:8.2f} ms {read:10.0f} KiB read")


if __name__ == "__main__":
    main()
