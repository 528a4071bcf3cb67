"""The recorded program: it does everything a store can do, and says what is promised as it goes.

    python -m tests.powerloss.program STORE PART... [--mutant NAME] [--boot NAME]

Each part is one of PARTS. It writes one JSON line, by one write, after each acknowledged step:

    {"added": ["name", [keys]]}      these keys must be found from now on
    {"trying": {"name": [keys]}}     a batch: from now on all of these are found, or none
    {"replacing": "name"}            from now on the filter's older keys need not be found
    {"dropping": "name"}             from now on the filter may be missing
    {"noted": ["name", "value"]}     a note that must be read from now on
    {"fenced": "name"}               this filter must answer "maybe"
    {"copied": "path"}               what was promised so far is promised there, too
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import bloomstore
from bloomstore import Durability, Fixed, Flexible, Scalable, Sequence
from bloomstore.families.contract import FilterSpec
from bloomstore.store.process import open_files
from bloomstore.store.write import bulk_load

SPECS: dict[str, tuple[FilterSpec, Durability]] = {
    "commit": (Scalable(target_error=0.01, initial_capacity=32), "commit"),
    "process": (Scalable(target_error=0.01, initial_capacity=64, layout="sliced"), "process"),
    "fixed": (Fixed(capacity=2000, target_error=0.01), "commit"),
    "wide": (Fixed(capacity=30_000, target_error=0.001, layout="blocked"), "commit"),
    "flexible": (
        Flexible(baseline_bits=1024, hashes=4, error=0.01, expansion=Sequence([1, 2])),
        "commit",
    ),
}


def say(line: dict[str, object]) -> None:
    """One promise, by one write."""
    os.write(1, (json.dumps(line) + "\n").encode())


def ensure_filters(store: bloomstore.Store) -> dict[str, bloomstore.Filter]:
    """The filters of the program."""
    return {
        name: store.ensure(name, spec, durability=durability)
        for name, (spec, durability) in SPECS.items()
    }


def add_rounds(store: bloomstore.Store, label: str, rounds: int) -> None:
    """Adds in every way, growing the filters."""
    filters = ensure_filters(store)
    for number in range(rounds):
        for name, users in filters.items():
            users.add(f"{label} single {number}")
            say({"added": [name, [f"{label} single {number}"]]})
            keys = [f"{label} many {number} {part}" for part in range(12)]
            users.add_many(keys)
            say({"added": [name, keys]})
        add_batch(store, filters, [f"{label} batch {number} {part}" for part in range(6)])


def add_batch(
    store: bloomstore.Store, filters: dict[str, bloomstore.Filter], keys: list[str]
) -> None:
    """The same keys to every filter, in one batch."""
    say({"trying": dict.fromkeys(filters, keys)})
    with store.batch():
        for users in filters.values():
            users.add_many(keys)
    for name in filters:
        say({"added": [name, keys]})


def begin(path: Path) -> None:
    """A new store with a few keys, closed well."""
    with bloomstore.open(path) as store:
        add_rounds(store, "begin", 1)


def adds(path: Path) -> None:
    """Adds with checkpoints in between, until the filters have four stages."""
    with bloomstore.open(path) as store:
        for number in range(4):
            add_rounds(store, f"adds {number}", 2)
            store.checkpoint()


def more(path: Path) -> None:
    """Adds that no checkpoint follows but the one at close."""
    with bloomstore.open(path) as store:
        add_rounds(store, f"more {os.getpid()}", 3)


def rebuild(path: Path) -> None:
    """Replaces the keys of a filter while it takes others."""
    with bloomstore.open(path) as store:
        ensure_filters(store)
        for name in ("commit", "process"):
            keys = [f"rebuilt {part}" for part in range(150)]
            say({"replacing": name})
            with store.rebuild(name) as new:
                new.add_many(keys)
                store[name].add("during the rebuild")
                say({"added": [name, ["during the rebuild"]]})
                new.switch()
            say({"added": [name, keys]})


def drop(path: Path) -> None:
    """Drops filters and makes one of the same name again."""
    with bloomstore.open(path) as store:
        ensure_filters(store)
        for name in ("fixed", "commit"):
            say({"dropping": name})
            store.drop(name)
        add_rounds(store, f"drop {os.getpid()}", 1)


def notes(path: Path) -> None:
    """Notes and fences."""
    with bloomstore.open(path) as store:
        filters = ensure_filters(store)
        for number in range(3):
            store.notes["position"] = str(number).encode()
            say({"noted": ["position", str(number)]})
        token = filters["flexible"].fence("for a while")
        say({"fenced": "flexible"})
        filters["flexible"].add("behind the fence")
        say({"added": ["flexible", ["behind the fence"]]})
        say({"fenced": ""})
        filters["flexible"].unfence(token)


def recover(path: Path) -> None:
    """Opens a store like its next user, asks it, and closes it."""
    with bloomstore.open(path) as store:
        for name in store:
            store[name].may_contain_many(range(10))


def load(path: Path) -> None:
    """Bulk loads, which write whole files instead of a journal."""
    bulk_load.LEAST_KEYS = 100
    with bloomstore.open(path) as store:
        for name, users in ensure_filters(store).items():
            for number in range(2):
                keys = [f"load {number} {part}" for part in range(400)]
                users.add_many(keys)
                say({"added": [name, keys]})
                users.add(f"after load {number}")
                say({"added": [name, [f"after load {number}"]]})


def tidy(path: Path) -> None:
    """Opens a store and closes it, which writes what others left unwritten."""
    bloomstore.open(path).close()


def backup(path: Path) -> None:
    """A copy of the store beside it, while it goes on."""
    with bloomstore.open(path) as store:
        store.backup(path.with_name("copies") / "first")
        say({"copied": "copies/first"})
        add_rounds(store, f"backup {os.getpid()}", 1)


def refuse(path: Path) -> None:
    """Goes on when the disk refuses: what fails is not acknowledged, and tried again later."""
    with bloomstore.open(path) as store:
        filters = ensure_filters(store)
        for number in range(30):
            keys = [f"refuse {number} {part}" for part in range(20)]
            for name, users in filters.items():
                try:
                    users.add_many(keys)
                except bloomstore.BloomStoreError:
                    continue
                say({"added": [name, keys]})
            if number % 5 == 4:
                try:
                    store.checkpoint()
                except bloomstore.BloomStoreError:
                    continue


PARTS = {
    part.__name__: part
    for part in (begin, adds, more, rebuild, drop, notes, recover, load, tidy, backup, refuse)
}


def use_boot(name: str) -> None:
    """Makes this process believe that it runs in a boot of this name."""
    vars(open_files)["boot_id"] = lambda: name


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore", UserWarning)  # stores on tmpfs
    path = Path(arguments.pop(0))
    while arguments:
        one = arguments.pop(0)
        if one == "--mutant":
            from tests.powerloss.mutants import MUTANTS

            MUTANTS[arguments.pop(0)]()
        elif one == "--boot":
            use_boot(arguments.pop(0))
        else:
            try:
                PARTS[one](path)
            except bloomstore.BloomStoreError:
                if one != "refuse":
                    raise


if __name__ == "__main__":
    main(sys.argv[1:])
