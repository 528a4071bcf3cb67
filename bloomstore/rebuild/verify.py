"""Asks a filter for every key of its source, and for random keys that no source has.

In: a filter and a source, out: how many keys it misses (must be none) with the first of them, and
the share of random keys that it reports, which is its measured error.
"""

from __future__ import annotations

import collections.abc as abc
import random
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bloomstore import Store
from bloomstore.errors import NotVerifiable
from bloomstore.keys import Key
from bloomstore.rebuild.read_ahead import ahead
from bloomstore.rebuild.source import Source, require_own_source

PROBES = 100_000
NAMED = 10  # missing keys that are named


@dataclass(slots=True)
class Verified:
    """The result of a verification."""

    name: str
    rows: int = 0
    missing: int = 0
    first_missing: list[Any] = field(default_factory=list)
    probes: int = 0
    reported: int = 0

    def count(self, keys: Any, lost: Any) -> None:
        """Counts the keys that are missing, and names the first of them."""
        self.missing += len(lost)
        room = NAMED - len(self.first_missing)
        self.first_missing += [_plain(keys[int(place)]) for place in lost[:room]]

    @property
    def observed_error(self) -> float:
        """Share of absent keys that the filter reports."""
        return self.reported / self.probes if self.probes else 0.0


def verify(
    store: Store,
    name: str,
    source: Source,
    *,
    probes: int = PROBES,
    progress: abc.Callable[[int], object] = lambda _: None,
) -> Verified:
    """Reads the source once. Changes nothing; writers may continue."""
    require_own_source(store, name, source)
    asked = store[name]
    if not asked.state.is_certain:
        raise NotVerifiable(f"filter {name!r} answers maybe to everything: {asked.state}")
    result = Verified(name)
    sample: Any = ""
    batches = source.batches(None)
    perhaps: list[Any] = []  # of an outbox
    with closing(ahead(batches) if source.reads_ahead else batches) as given:
        for batch in given:
            keys: Any = batch.keys
            lost = np.flatnonzero(~asked.may_contain_many(keys))
            if len(keys):
                sample = _plain(keys[0])
            if source.is_fed:
                perhaps += [keys[int(place)] for place in lost]
            else:
                result.count(keys, lost)
            result.rows += batch.rows
            progress(result.rows)
    if perhaps:  # keys that have left the outbox since were added before that
        coming = source.coming()
        perhaps = [key for key in perhaps if key not in coming]
        result.count(perhaps, np.flatnonzero(~asked.may_contain_many(perhaps)))
    absent = [absent_key(sample) for _ in range(probes)]
    result.probes = probes
    result.reported = int(np.count_nonzero(asked.may_contain_many(absent)))
    if not asked.state.is_certain:  # from one batch to the next
        raise NotVerifiable(
            f"filter {name!r} began to answer maybe during the verification: {asked.state}"
        )
    return result


def absent_key(like: Any) -> Key:
    """A random key of the same type, which no source has as far as chance can be trusted.

    Types with few values (dates, bools) get a text: the bits of a key do not tell its type.
    """
    if isinstance(like, tuple):
        return tuple(absent_key(part) for part in like)
    if isinstance(like, bool):
        return uuid.uuid4().hex
    if isinstance(like, int):
        return random.getrandbits(63)
    if isinstance(like, uuid.UUID):
        return uuid.uuid4()
    if isinstance(like, bytes):
        return uuid.uuid4().bytes
    return uuid.uuid4().hex


def _plain(key: Any) -> Any:
    """A key as a Python object: Arrow has scalars of its own."""
    return key.as_py() if hasattr(key, "as_py") else key
