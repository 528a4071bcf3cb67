"""Compare bloomstore with the filters a Python user could pick instead, side by side in one run.

    python tools/bench.py --quick
    python tools/bench.py --json bench.json --plot bench.png     # 10^6 and 10^7 keys: half an hour
    python tools/bench.py --keys 1e7 --errors 0.01 --rows 'bulk*'
    python tools/bench.py --stages
    python tools/bench.py --profile

    single hit, miss, add          one key per call
    bulk add, miss, hit            a list of keys per call; with "array": a numpy int64 array
    error                          absent keys that are reported, and bits per key of everybody
    grown ...                      a filter made for a tenth of its keys
    reopen                         open a filter of 10^7 keys with all checks, and ask one key
    durable add, add_many          against bare LMDB commits in the same folder (elapsed time)
    checks                         the store's lookups against the bare loops over the same bits
    threads                        two threads against one, lookups and adds (elapsed time)
    --slow                         10^8 keys: 3 GB of memory, minutes
    --stages                       lookups and bits per key over 1, 4, 8, 12 stages, both kernels
    --profile                      adds, lookups and opening in steps: why a row is as it is

Contestants take turns, CPU time is compared, and only ratios mean something; they differ by a few
percent between runs. Filters compared with peers have durability `process`, and one thread does
everything, as theirs does. Goals are for 10^6 keys and more: --quick has none.
Peers come with `pip install bloomstore[bench]`; one that is missing is named, and the rows lose it.

Files are written to a folder under --folder and removed. Exit status: 0, 1 if a goal was missed,
2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import bloomstore
from bloomstore import kernels
from bloomstore.kernels import threads
from tools.bench.measure import Row
from tools.bench.peer_rows import GROWN, Setting, grown_rows, peer_rows, say
from tools.bench.peers import Maker, present_peers
from tools.bench.profile import print_profile, profile
from tools.bench.report import draw, print_table, write_json
from tools.bench.stages import both_twins, print_stages
from tools.bench.store_rows import LARGE_ROWS, large_rows, store_rows


def main() -> int:
    arguments = parse()
    peers, missing = present_peers()
    for name in missing:
        say(f"!!! PEER MISSING, its column is empty: {name} (pip install bloomstore[bench])")
    if kernels.BACKEND != "compiled":
        say(f"!!! the {kernels.BACKEND} kernels run, not the compiled ones")
    threads.THREADS = 1  # but in the rows about threads
    if arguments.stages or arguments.profile:
        tables = look_closer(arguments, peers)
        if arguments.json is not None:
            write_json(arguments.json, vars(arguments), **tables)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-") as scratch:
        folder = Path(scratch)
        with bloomstore.open(folder / "store") as store:
            setting = Setting(
                store=store,
                folder=folder,
                peers=peers,
                keys=arguments.keys[0],
                rounds=arguments.rounds,
                wanted=partial(is_one_of, patterns=arguments.rows.split(",")),
                full_growth=arguments.slow,
            )
            rows = [row for row in collect(setting, arguments) if setting.wanted(row.name)]
    if not rows:
        say(f"bench.py: no row is named {arguments.rows!r}")
        return 2
    if arguments.quick:
        for row in rows:
            row.goal = None
    print_table(rows)
    if arguments.json is not None:
        write_json(arguments.json, vars(arguments), rows=[row.as_dict() for row in rows])
    if arguments.plot is not None:
        draw(arguments.plot, rows)
    if arguments.quick:
        print("no goals: they are for 10^6 keys and more")
        return 0
    missed = [row for row in rows if row.verdict == "MISS"]
    print(f"{len(missed)} of {sum(row.goal is not None for row in rows)} goals missed")
    return 1 if missed else 0


def collect(setting: Setting, arguments: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for keys in arguments.keys:
        for error in arguments.errors:
            for kind in arguments.kinds:
                rows += peer_rows(replace(setting, keys=keys), kind, error)
                if any(map(setting.wanted, GROWN)) and keys == setting.keys:
                    rows += grown_rows(setting, kind, error)
    rows += store_rows(setting, arguments.quick)
    if arguments.slow and any(map(setting.wanted, LARGE_ROWS)):
        rows += large_rows(setting)
    return rows


def is_one_of(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def look_closer(arguments: argparse.Namespace, peers: dict[str, Maker]) -> dict[str, Any]:
    """The tables behind the rows."""
    if arguments.stages:
        found = both_twins(arguments.keys[0], arguments.rounds)
        print_stages(found)
        return {"stages": found}
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-") as scratch:
        folder = Path(scratch)
        with bloomstore.open(folder / "store") as store:
            steps = profile(store, folder, peers, arguments.keys[0], arguments.rounds)
    print_profile(steps)
    return {"profile": steps}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=wholes, help="keys of a filter (default 1e6,1e7)")
    parser.add_argument("--errors", type=errors, help="target errors (default 0.01,0.001)")
    parser.add_argument("--kinds", default="int,str", type=kinds, help="int, str or int,str")
    parser.add_argument("--rounds", type=whole, help="rounds of every row (default 7)")
    parser.add_argument("--rows", default="*", help="names of rows, with * and commas")
    parser.add_argument(
        "--quick", action="store_true", help="fewer keys, one error: under a minute"
    )
    parser.add_argument("--slow", action="store_true", help="also 10^8 keys")
    parser.add_argument("--stages", action="store_true", help="only the table of stages")
    parser.add_argument("--profile", action="store_true", help="only the time of each step")
    parser.add_argument("--folder", type=Path, help="where files are made (default: /tmp)")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    parser.add_argument("--plot", type=Path, help="draw the rows into this file")
    arguments = parser.parse_args()
    for path in (arguments.json, arguments.plot):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: there is no folder {path.parent}")
    if arguments.folder is not None and not arguments.folder.is_dir():
        parser.error(f"{arguments.folder}: not a folder")
    if arguments.stages and arguments.profile:
        parser.error("--stages and --profile are tables of their own: one at a time")
    quick = arguments.quick
    arguments.keys = arguments.keys or ([100_000] if quick else [1_000_000, 10_000_000])
    arguments.errors = arguments.errors or ([0.01] if quick else [0.01, 0.001])
    arguments.rounds = arguments.rounds or (3 if quick else 7)
    return arguments


def whole(text: str) -> int:
    """1e6 is a whole number here."""
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return number


def wholes(text: str) -> list[int]:
    return [whole(one) for one in text.split(",")]


def errors(text: str) -> list[float]:
    found = [float(one) for one in text.split(",")]
    if not all(0 < one < 1 for one in found):
        raise argparse.ArgumentTypeError(f"expected numbers between 0 and 1, got {text!r}")
    return found


def kinds(text: str) -> list[str]:
    found = text.split(",")
    if not {"int", "str"}.issuperset(found):
        raise argparse.ArgumentTypeError(f"expected int, str or int,str, got {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
