"""What the next user of a store finds after a power cut, compared with what was promised.

In: the folder of an image and the promises before the cut, out: a list of violations, empty when
the promise was kept:

  1. the store opens (a store whose making was cut off is finished or made again);
  2. every acknowledged key is found, one by one and in a batch, first by a reader that may not
     recover, then by a writer, then by a reader after a clean close;
  3. filters of durability `commit` are sound, their error is as promised, `check` is silent;
     those of durability `process` may have become "maybe" as a whole, and say so;
  4. a batch that was not acknowledged is there as a whole or not at all;
  5. notes are those last acknowledged or being written; fences hold;
  6. the store takes new keys.
"""

from __future__ import annotations

import collections.abc as abc
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import bloomstore
from bloomstore import Fixed
from bloomstore.errors import BloomStoreError, NotAStore, StoreNotFound

NEGATIVES = 1500
# What may be wrong with a filter of durability `process` after the machine went down.
LOST_WITH_THE_MACHINE = ("the machine went down",)
# What may be wrong with any filter after the disk refused something.
REFUSED = ("a sync failed", "could not be applied")
NEXT_KEY = "the next day"
# Every key is asked for in a batch, and so many of them by themselves, too.
SINGLES = 10


@dataclass
class Promises:
    """What must hold, by filter."""

    keys: dict[str, set[str]] = field(default_factory=dict)
    trying: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    fenced: str = ""
    copies: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    perhaps_missing: set[str] = field(default_factory=set)


def promises(lines: abc.Iterable[str]) -> Promises:
    """What these lines of the program promise together."""
    found = Promises()
    for line in lines:
        step = json.loads(line)
        if "added" in step:
            name, keys = step["added"]
            found.keys.setdefault(name, set()).update(keys)
            found.perhaps_missing.discard(name)
            found.trying = {}
        elif "trying" in step:
            found.trying = step["trying"]
        elif "replacing" in step:
            found.keys[step["replacing"]] = set()
        elif "dropping" in step:
            found.keys.pop(step["dropping"], None)
            found.perhaps_missing.add(step["dropping"])
        elif "noted" in step:
            name, value = step["noted"]
            found.notes[name] = value
        elif "copied" in step:
            keys_now = {name: set(keys) for name, keys in found.keys.items()}
            found.copies[step["copied"]] = keys_now
        elif "fenced" in step:
            found.fenced = step["fenced"]
    return found


def violations(path: Path, promised: Promises, *, after_errors: bool = False) -> list[str]:
    """Everything that is not as promised; after errors of the disk, syncs may have failed."""
    wrong: list[str] = []
    try:
        _read_before_recovery(path, promised, wrong)
        with bloomstore.open(path) as store:
            _find_keys(store, promised, wrong, "writer")
            _look_at_states(store, wrong, after_errors=after_errors)
            _look_at_batch(store, promised, wrong)
            _look_at_notes(store, promised, wrong)
            with store.batch():
                for name in store:
                    # A fixed filter in doubt has no other stage to put its keys into.
                    if store[name].state.is_sound or not isinstance(store[name].spec, Fixed):
                        store[name].add(NEXT_KEY)
            wrong += [
                f"{name}: a new key is not found" for name in store if NEXT_KEY not in store[name]
            ]
        with bloomstore.open(path, read_only=True) as store:
            _find_keys(store, promised, wrong, "reader")
            _look_at_states(store, wrong, after_errors=after_errors)
        for name, keys in promised.copies.items():
            with bloomstore.open(path.parent / name, create=False) as store:
                _find_keys(store, Promises(keys), wrong, "copy")
                wrong += [f"copy: {problem}" for problem in store.check()]
        if after_errors:
            _repair(path, promised, wrong)
    except BloomStoreError as error:
        wrong.append(f"{type(error).__name__}: {error}")
    return wrong


def _repair(path: Path, promised: Promises, wrong: list[str]) -> None:
    """What `repair` makes of a filter in doubt must not lose keys either."""
    with bloomstore.open(path) as store:
        done = list(store.repair())
        _find_keys(store, promised, wrong, "after repair")
        if wrong:
            wrong += map(str, done)


def _read_before_recovery(path: Path, promised: Promises, wrong: list[str]) -> None:
    try:
        with bloomstore.open(path, read_only=True) as store:
            _find_keys(store, promised, wrong, "first reader")
    except (NotAStore, StoreNotFound) as error:
        if promised.keys:
            wrong.append(f"first reader: {error}")


def _find_keys(store: bloomstore.Store, promised: Promises, wrong: list[str], who: str) -> None:
    for name, keys in promised.keys.items():
        if name not in store:
            if keys and name not in promised.perhaps_missing:
                wrong.append(f"{who}: {name}: the filter is missing")
            continue
        users = store[name]
        asked = sorted(keys)
        missing = [key for key in asked[:: len(asked) // SINGLES + 1] if key not in users]
        if missing:
            wrong.append(f"{who}: {name}: single lookups lose {len(missing)} keys: {missing[:3]}")
        found = users.may_contain_many(asked)
        if not found.all():
            missing = [key for key, yes in zip(asked, found, strict=True) if not yes]
            wrong.append(f"{who}: {name}: {len(missing)} keys lost: {missing[:3]}")


def _look_at_states(store: bloomstore.Store, wrong: list[str], *, after_errors: bool) -> None:
    excused: set[str] = set()
    for name in store:
        users = store[name]
        if not users.state.is_sound:
            reasons: tuple[str, ...] = (
                LOST_WITH_THE_MACHINE if users.durability == "process" else ()
            )
            reasons += REFUSED if after_errors else ()
            if any(reason in str(users.state) for reason in reasons):
                excused.add(name)
            elif not str(users.state).startswith("fenced"):
                wrong.append(f"{name}: {users.state}")
            continue
        reported = np.count_nonzero(users.may_contain_many(np.arange(NEGATIVES)))
        # Five standard deviations: chance does not fail it, a filter that lost its count does.
        expected = NEGATIVES * users.stats().target_error
        if reported > expected + 5 * max(expected, 1) ** 0.5:
            wrong.append(f"{name}: {reported} of {NEGATIVES} absent keys are reported")
    wrong += [
        f"check: {problem}" for problem in store.check() if problem.filter_name not in excused
    ]


def _look_at_batch(store: bloomstore.Store, promised: Promises, wrong: list[str]) -> None:
    found = {
        name: int(np.count_nonzero(store[name].may_contain_many(keys)))
        for name, keys in promised.trying.items()
        if name in store and store[name].durability == "commit" and store[name].state.is_sound
    }
    # A few may be reported by chance; all of them in one filter and hardly any in another not.
    if found and max(found.values()) == 6 and min(found.values()) <= 2:
        wrong.append(f"half a batch: {found}")


def _look_at_notes(store: bloomstore.Store, promised: Promises, wrong: list[str]) -> None:
    for name, value in promised.notes.items():
        read = store.notes.get(name, b"").decode()
        if read not in (value, str(int(value) + 1)):
            wrong.append(f"note {name!r} is {read!r}, expected {value!r}")
    if promised.fenced and store[promised.fenced].state.is_sound:
        wrong.append(f"{promised.fenced}: the fence is gone")
