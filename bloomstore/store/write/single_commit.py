"""The ordinary durable add, to one filter or several: everything in a single LMDB transaction.

In: views and fingerprints, out: how many keys were new, or None with nothing changed; the caller
then takes the general road. Ordinary means: no other process or thread is writing, no dead holder
left anything to finish, no rebuild is under way, and every key fits into the newest stage of its
filter. The work and its order are those of the general road, in one transaction instead of two and
one more per filter: the transaction that is begun shows the commits of a dead holder (see
Catalog.settled), and is committed with the journal rows if there are none.

The reason: one durable add took 117 us of processor time beside its commit, now 17; five times
as much with cold caches. Two filters in a batch took 200 us in four
transactions, now 60 in one.

`handle`, the OneKey of the filter, is given with a single key that no stage has. It says which bits
that key would set, and sets them, without numpy: 15 us instead of 16.5, and 108 instead of 130 when
nothing is in the caches.

Not here: the roads for anything out of the ordinary (group_commit.py, batch.py, writer.py,
durable/recovery.py).
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.kernels import MAX_PRINTS_PER_CALL, OneKey
from bloomstore.store.durable import checkpoint
from bloomstore.store.process.open_files import Core
from bloomstore.store.process.words import APPLIED, APPLYING, GENERATION
from bloomstore.store.view import FilterView
from bloomstore.store.write import commit, plan
from bloomstore.store.write.plan import Part, Prints

# Keys for one filter each: no filter comes twice, since one plan does not see the other's bits.
Wanted = abc.Sequence[tuple[FilterView, Prints]]


def add(core: Core, wanted: Wanted, handle: OneKey | None = None) -> int | None:
    """Adds keys durably with one commit; None if something is out of the ordinary.

    Every block of the filters' newest stages must have been verified: nothing is verified here.
    """
    if core.doubt is not None or core.unrecorded:
        return None
    keys = 0
    for view, prints in wanted:
        keys += len(prints)
        if view.coming is not None or not plan.has_room(view.live):
            return None
    if keys > MAX_PRINTS_PER_CALL:
        return None
    hold = core.lock.at_once()
    if hold is None:
        return None
    try:
        with core.catalog.attempt() as change:
            number = change.number
            last = core.last_commit
            # Without a commit since, the catalog has not changed. Reading it would take 20 us with
            # cold caches.
            moment = last[1] if last is not None and last[0] == number - 1 else change.moment()
            if not _is_current(core, moment, wanted):
                return None
            parts = _plan(core, wanted, handle)
            if not parts:
                return None if parts is None else 0
            journal_bytes = commit.write(core, parts, (change, moment[0]), handle)
            core.last_commit = number, (moment[0] + len(parts), moment[1])
        if journal_bytes:
            checkpoint.if_due(core, parts[-1].stage, journal_bytes)
        return sum([len(part.prints) for part in parts])
    finally:
        hold.end()


def _is_current(core: Core, moment: tuple[int, int], wanted: Wanted) -> bool:
    """Whether words, counts and views are those of the catalog at this moment."""
    words = core.words
    if (words[APPLIED], words[GENERATION]) != moment or words[APPLYING]:
        return False
    if core.counts_moment != moment:
        return False
    return all(view.generation == moment[1] for view, _ in wanted)


def _plan(core: Core, wanted: Wanted, handle: OneKey | None) -> list[Part] | None:
    """A part for each filter that has new keys; None if the keys of one do not fit."""
    if handle is not None:
        ((view, prints),) = wanted
        bits = handle._missing_bits(prints, view.generation)
        part = plan.plan_one(core, view.live.newest, prints, bits) if bits > 0 else None
        return None if part is None and bits else [] if part is None else [part]
    parts = []
    for view, prints in wanted:
        unknown = plan.unknown_to_older(view.live, prints)
        part, taken = plan.plan(core, view.live.newest, unknown)
        if taken < len(unknown):
            return None
        if part is not None:
            parts.append(part)
    return parts
