"""Many questions to one guard in one go: lists of an IN, partitions."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from bloomstore import BloomStoreError
from bloomstore.keys import Key
from bloomstore.sql.capture.pending import Pending
from bloomstore.sql.databases.canonical import Unclear, hold_all
from bloomstore.sql.guards.guard import WRITTEN, ActiveGuard


def may_be_present(
    guard: ActiveGuard, values: list[Any], pending: Pending | None = None
) -> list[Any]:
    """Those of the values that may have a row, in their order: many questions in one go."""
    believed = None
    with contextlib.suppress(BloomStoreError):
        believed = guard.believed()
    if believed is None or (pending and guard in pending.unknown):
        guard.metrics.count_unknown(guard.doubt or WRITTEN, len(values))
        return values
    own = guard.own
    is_own = own is not None and hold_all(guard.room, values, own)
    keys = values if is_own else [_key_or_none(guard, value) for value in values]
    asked = keys if is_own else [key for key in keys if key is not None]
    try:
        found = believed.may_contain_many(asked)  # type: ignore[arg-type]
        state = believed.state
    except BloomStoreError as error:
        guard.reopen()
        guard.metrics.count_unknown(str(error), len(values))
        return values
    if not state.is_certain:
        guard.metrics.count_unknown(str(state), len(values))
        return values
    mine = pending.keys.get(guard, ()) if pending else ()
    if mine:
        found |= np.fromiter((key in mine for key in asked), np.bool_, len(asked))
    if len(asked) < len(keys):  # a value without a key may be there
        answers, found = found, np.ones(len(keys), np.bool_)
        found[[key is not None for key in keys]] = answers
    present = [values[place] for place in found.nonzero()[0].tolist()]
    guard.metrics.absent += len(values) - len(present)
    guard.metrics.maybe += len(present)
    return present


def those_left_out(values: list[Any], present: list[Any]) -> list[Any]:
    """The others: `present` has some of the very same objects, in the same order."""
    kept = iter(present)
    following = next(kept, None)
    absent = []
    for value in values:
        if value is following:
            following = next(kept, None)
        else:
            absent.append(value)
    return absent


def _key_or_none(guard: ActiveGuard, value: object) -> Key | None:
    try:
        return guard.key_of(value)
    except Unclear:
        return None
