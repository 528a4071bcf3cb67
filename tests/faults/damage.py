"""Damage to the files of a closed store, and what every reader must answer then."""

from __future__ import annotations

import collections.abc as abc
import os
import random
import shutil
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path

import lmdb

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog.environment import TABLES
from bloomstore.errors import BloomStoreError
from bloomstore.layout.layouts import Layout

KEYS = [f"user {number}" for number in range(3000)]
LAYOUTS: dict[str, Layout] = {"blocked": "blocked", "sliced": "sliced"}
NAMES = (*LAYOUTS, "journalled", "process", "dirty")


def make_store(path: Path) -> None:
    """A store with sealed and active stages, one filter with a full journal, one that is dirty."""
    with bloomstore.open(path) as store:
        for name in NAMES:
            store.create(
                name,
                Scalable(target_error=0.001, initial_capacity=500, layout=LAYOUTS.get(name)),
                durability="process" if name in ("process", "dirty") else "commit",
            ).add_many(KEYS)
        store.checkpoint()
        store["journalled"].add_many(KEYS)
        store["journalled"].add_many([f"late {number}" for number in range(50)])
        keep = shutil.copytree(path / "catalog", path.with_name("catalog with journal"))
        lock = shutil.copy(path / "lock", path.with_name("lock with journal"))
    # The journal as it was before the clean close: its rows are applied, but not deleted. The words
    # are those of that moment, or the catalog would be taken for rolled back.
    shutil.rmtree(path / "catalog")
    shutil.move(keep, path / "catalog")
    shutil.move(lock, path / "lock")
    in_a_process_that_is_killed(lambda: bloomstore.open(path)["dirty"].add_many(["late", "later"]))


def in_a_process_that_is_killed(work: abc.Callable[[], object]) -> None:
    """Does the work in a process of its own, which dies right after it without closing anything."""
    child = os.fork()
    if not child:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:  # noqa: BLE001  the parent sees the status
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


@dataclass
class Verdict:
    """What a reader saw."""

    lost: list[str]
    problems: list[str]
    refused: str = ""


def read(path: Path, *, read_only: bool) -> Verdict:
    """Asks every filter for every key; an error of the package is no answer, so it is no "no"."""
    lost: list[str] = []
    problems: list[str] = []
    try:
        with bloomstore.open(path, read_only=read_only, create=False) as store:
            for name in NAMES:
                try:
                    users = store[name]
                    lost += [f"{name}: {key}" for key in KEYS[::50] if key not in users]
                    found = users.may_contain_many(KEYS)
                    lost += [
                        f"{name}: {key}" for key, yes in zip(KEYS, found, strict=True) if not yes
                    ]
                except BloomStoreError as error:
                    problems.append(str(error))
            problems += [str(problem) for problem in store.check()]
    except BloomStoreError as error:
        return Verdict(lost, problems, str(error))
    return Verdict(lost, problems)


def flip_byte(path: Path, chance: random.Random, first: int = 0, last: int | None = None) -> str:
    """Changes one byte of a file."""
    with path.open("r+b") as file:
        at = chance.randrange(first, os.fstat(file.fileno()).st_size if last is None else last)
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ (1 << chance.randrange(8))]))
    return f"{path.name}: byte {at}"


def zero_run(path: Path, chance: random.Random, first: int, last: int) -> str:
    """Zeroes a run of bytes."""
    at = chance.randrange(first, last)
    length = min(chance.choice([1, 8, 512, 4096, 70_000]), last - at)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(length))
    return f"{path.name}: {length} zeros at {at}"


def damage_row(path: Path, chance: random.Random) -> str:
    """Changes one byte of one row of the catalog, or deletes or swaps rows."""
    with lmdb.open(str(path / "catalog"), max_dbs=len(TABLES), map_size=1 << 30) as environment:
        names = ["filters", "stages", "blocks", "journal", "store"]
        table = chance.choice(names)
        handle = environment.open_db(table.encode(), create=False)
        with environment.begin(write=True, db=handle) as transaction:
            rows = list(transaction.cursor())
            key, value = chance.choice(rows)
            how = chance.choice(["flip", "flip", "zero", "cut", "swap"])
            if how == "flip":
                changed = bytearray(value)
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            elif how == "zero":
                changed = bytearray(len(value))
            elif how == "cut":
                changed = bytearray(value[: chance.randrange(len(value))])
            else:
                changed = bytearray(chance.choice(rows)[1])
            transaction.put(key, bytes(changed))
    return f"{table}: {how} {key!r}"
