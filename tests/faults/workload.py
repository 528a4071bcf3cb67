"""A program that does everything a store can do, and says what was acknowledged as it goes.

Run in a process of its own: `python workload.py STORE [--only-open]`. It prints one JSON line
after each acknowledged step, by one write each, so that a kill never cuts a promise in half.

    {"added": ["name", [keys]]}     these keys must be found from now on
    {"dropping": "name"}            from now on the filter may be missing or empty
    {"replacing": ["name", [keys]]} from now on only these keys must be found
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import bloomstore
from bloomstore import Durability, Fixed, Flexible, Scalable, Sequence
from bloomstore.families.contract import FilterSpec
from bloomstore.store.write import bulk_load

SPECS: dict[str, tuple[FilterSpec, Durability]] = {
    "commit": (Scalable(target_error=0.01, initial_capacity=32), "commit"),
    "process": (Scalable(target_error=0.01, initial_capacity=32, layout="sliced"), "process"),
    "fixed": (Fixed(capacity=2000, target_error=0.01), "commit"),
    "flexible": (
        Flexible(baseline_bits=1024, hashes=4, error=0.01, expansion=Sequence([1, 2])),
        "commit",
    ),
}


def say(line: dict[str, object]) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


def add_rounds(store: bloomstore.Store, first: int, rounds: int) -> None:
    """Adds in every way, growing the filters, with a checkpoint now and then."""
    filters = {
        name: store.ensure(name, spec, durability=durability)
        for name, (spec, durability) in SPECS.items()
    }
    for number in range(first, first + rounds):
        for name, users in filters.items():
            users.add(f"single {number}")
            say({"added": [name, [f"single {number}"]]})
            keys = [f"many {number} {part}" for part in range(20)]
            users.add_many(keys)
            say({"added": [name, keys]})
        with store.batch():
            for users in filters.values():
                users.add_many([f"batch {number} {part}" for part in range(5)])
        for name in filters:
            say({"added": [name, [f"batch {number} {part}" for part in range(5)]]})
        if number % 4 == 3:
            store.checkpoint()


def rebuild(store: bloomstore.Store) -> None:
    """Replaces the keys of one filter."""
    keys = [f"rebuilt {part}" for part in range(300)]
    say({"replacing": ["commit", []]})
    with store.rebuild("commit") as new:
        new.add_many(keys)
        store["commit"].add("during the rebuild")
        say({"added": ["commit", ["during the rebuild"]]})
        new.switch()
    say({"added": ["commit", keys]})


def main() -> None:
    path = Path(sys.argv[1])
    if "--only-open" in sys.argv:
        bloomstore.open(path).close()
        return
    with bloomstore.open(path) as store:
        add_rounds(store, 0, 6)
        rebuild(store)
        bulk_load.LEAST_KEYS = 1000
        for name in ("process", "commit"):
            keys = [f"bulk {part}" for part in range(3000)]
            store[name].add_many(keys)
            say({"added": [name, keys]})
        say({"dropping": "fixed"})
        store.drop("fixed")
        add_rounds(store, 6, 4)
    with bloomstore.open(path) as store:
        add_rounds(store, 10, 2)
    say({"done": True})


if __name__ == "__main__":
    main()
