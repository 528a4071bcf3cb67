"""Many lookups of one guard at once: the list of an IN, or of plugin.partition.

In: values. Out: the values that may have a row. Values in doubt are among them, so doubt never
drops a value.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from bloomstore import BloomStoreError
from bloomstore.keys import Key
from bloomstore.sql.databases.canonical import Unclear, hold_all
from bloomstore.sql.guards.contract import OwnWrites
from bloomstore.sql.guards.guard import WRITTEN, ActiveGuard


def possibly_present(
    guard: ActiveGuard, values: list[Any], own_writes: OwnWrites | None = None
) -> list[Any]:
    """The values that may have a row, in their order; all of them where the guard is in doubt."""
    believed = None
    with contextlib.suppress(BloomStoreError):
        believed = guard.believed()
    if believed is None or (own_writes and guard in own_writes.unknown):
        guard.metrics.count_unknown(guard.doubt or WRITTEN, len(values))
        return values
    own = guard.own
    is_own = own is not None and hold_all(guard.room, values, own)
    keys = values if is_own else [_key_or_none(guard, value) for value in values]
    certain = keys if is_own else [key for key in keys if key is not None]
    try:
        may_be_there = believed.may_contain_many(certain)  # type: ignore[arg-type]
        state = believed.state
    except BloomStoreError as error:
        guard.reopen()
        guard.metrics.count_unknown(str(error), len(values))
        return values
    if not state.is_certain:
        guard.metrics.count_unknown(str(state), len(values))
        return values
    written = own_writes.keys.get(guard, ()) if own_writes else ()
    if written:
        may_be_there |= np.fromiter((key in written for key in certain), np.bool_, len(certain))
    if len(certain) < len(keys):  # a value without a key may have a row
        answers, may_be_there = may_be_there, np.ones(len(keys), np.bool_)
        may_be_there[[key is not None for key in keys]] = answers
    present = [values[index] for index in may_be_there.nonzero()[0].tolist()]
    guard.metrics.count_many(absent=len(values) - len(present), maybe=len(present))
    return present


def others_than(present: list[Any], values: list[Any]) -> list[Any]:
    """The values that are not in `present`, which holds some of the very same objects in order."""
    rest = iter(present)
    following = next(rest, None)
    absent = []
    for value in values:
        if value is following:
            following = next(rest, None)
        else:
            absent.append(value)
    return absent


def _key_or_none(guard: ActiveGuard, value: object) -> Key | None:
    try:
        return guard.key_of(value)
    except Unclear:
        return None
