"""A rebuild from its source, online and offline alike: the one order of its steps.

  1. a coming chain is entered into the catalog: from here on every writer adds to both chains; the
     present fences are remembered (or all this is found as an earlier attempt left it);
  2. the source waits for writers that did not know of it (source.prepare);
  3. batches are added, each asked for again and durable before the position after it is noted;
  4. proof: the source was read to its end by its own count and is the same as at the beginning,
     and it belongs to this filter (foreign_keys.py);
  5. the source waits until no snapshot shows older rows (source.settle), then the switch proves
     the checksums of the new segments, in one commit;
  6. the owner writes its record of the build, and the remembered fences are lowered.
Fences that were raised after step 1 stay: their rows may be younger than what was read.

A process that dies leaves chain and position in the catalog; the next call continues from there, if
the source proves to be the same. If it died right after the switch, its last step is done first;
then a source that may have changed since is read again, from the beginning. An attempt whose proof
failed (Incomplete) is discarded. Before the switch, lookups are answered as if there were no
rebuild.
"""

from __future__ import annotations

import collections.abc as abc
import json
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from bloomstore import Store
from bloomstore.crash import crash_point
from bloomstore.errors import Incomplete, RebuildError, SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.rebuild.foreign_keys import sample, why_foreign
from bloomstore.rebuild.plan import plan_rebuild
from bloomstore.rebuild.read_ahead import ahead
from bloomstore.rebuild.rebuild_lock import only_rebuild
from bloomstore.rebuild.source import Position, Source, require_own_source
from bloomstore.rebuild.state import State, forget_state, read_state, write_state
from bloomstore.store.write.coming_chain import Rebuild, begin, is_live, left_behind, resume
from bloomstore.store.write.stage_in_memory import Outgrown

PATIENCE = 60.0  # seconds to wait for transactions of others

Progress = abc.Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The outcome of a rebuild. `resumed_at`: rows that an earlier attempt had read."""

    name: str
    rows: int
    keys: int
    resumed_at: int
    seconds: float
    began_again: str = ""  # why an earlier attempt could not be resumed
    still: str = ""  # why the filter still answers "maybe"


def rebuild(
    store: Store,
    name: str,
    source: Source,
    *,
    spec: FilterSpec | None = None,
    capacity: int | None = None,
    target_error: float | None = None,
    restart: bool = False,
    other_keys: bool = False,
    patience: float = PATIENCE,
    planned: abc.Callable[[int | None], object] = lambda _: None,
    progress: Progress = lambda _: None,
) -> Rebuilt:
    """Rebuilds the filter from its source while writers and readers continue.

    `spec`, or `capacity` and `target_error`, describe the new filter; without them it keeps its
    family and error in one stage for as many keys as the source has. Resumes an interrupted
    rebuild, unless `restart`. A source that has none of the filter's keys is refused, unless
    `other_keys`. `planned` is called with the number of rows, `progress` with those read so far.
    """
    if spec is not None and (capacity is not None or target_error is not None):
        raise SpecError("give either a whole spec, or capacity and target_error")
    require_own_source(store, name, source)
    wanted = {
        "spec": None if spec is None else spec.to_dict(),
        "capacity": capacity,
        "target_error": target_error,
    }
    held = nullcontext() if source.owner is None else source.owner.held()
    with held, only_rebuild(store, name):
        return _rebuild(
            store, name, source, wanted, spec, restart, other_keys, patience, planned, progress
        )


def _rebuild(
    store: Store,
    name: str,
    source: Source,
    wanted: dict[str, Any],
    spec: FilterSpec | None,
    restart: bool,
    other_keys: bool,
    patience: float,
    planned: abc.Callable[[int | None], object],
    progress: Progress,
) -> Rebuilt:
    started = time.monotonic()
    found = _Begun() if restart else _begun_before(store, name, source, wanted)
    new, state, keys = found.new, found.state, 0
    resumed_at = 0 if state is None else state.rows
    if state is None:
        source.begin()
        plan = plan_rebuild(
            store[name],
            source,
            spec=spec,
            capacity=wanted["capacity"],
            target_error=wanted["target_error"],
        )
        planned(plan.rows)
        new, state = _begin(store, name, plan.spec, source, wanted)
    elif new is not None:
        planned(source.count())
    if new is not None:
        try:
            _fill(store, new, source, state, patience, progress)
            if not other_keys and source.owner is None:  # an owner knows its own source
                _require_own_keys(store, name, source, state)
            source.settle(patience)
            keys = new.added
            new.switch()
        except BaseException as error:
            is_void = isinstance(error, Incomplete) or source.why_not_resumable or not state.rows
            if is_void and not new.is_switched:
                _discard(store, new)
            raise
    crash_point("rebuild: switched")
    _end(store, name, source, state)
    now = store[name].state
    return Rebuilt(
        name=name,
        rows=state.rows,
        keys=keys,
        resumed_at=resumed_at,
        seconds=time.monotonic() - started,
        began_again=found.why_not,
        still="" if now.is_sound else str(now),
    )


def give_up(store: Store, name: str) -> bool:
    """Discards an interrupted rebuild; returns whether there was one."""
    with only_rebuild(store, name):
        new = left_behind(store, name)
        if new is not None:
            new.discard()
        forget_state(store, name)
    return new is not None


class _Begun(NamedTuple):
    """An interrupted rebuild. Without `new` nothing is left to do, without `state` everything is.

    `why_not`: why it cannot be resumed.
    """

    new: Rebuild | None = None
    state: State | None = None
    why_not: str = ""


def _begun_before(store: Store, name: str, source: Source, wanted: dict[str, Any]) -> _Begun:
    state = read_state(store, name)
    if state is None:
        return _Begun()
    if state.position is None:
        state.rows = 0
    identity = _plain(source.identity())
    is_same = (state.source, state.wanted) == (identity, wanted)
    if is_live(store, name, state.chain):
        if is_same:
            _end(store, name, source, state)
        if is_same and source.is_fixed:
            return _Begun(None, state)
        return _Begun(why_not="it had ended, and its source may have changed since")
    new = resume(store, name, state.chain)
    if new is None:
        return _Begun(why_not="its chain is gone or damaged")
    if not is_same and not state.rows:
        return _Begun()
    for what, was, asked in (("source", state.source, identity), ("spec", state.wanted, wanted)):
        if was != asked:
            raise RebuildError(
                f"a rebuild of {name!r} was begun with another {what}: {_differences(was, asked)};"
                f" it has read {state.rows:,} rows: give it up or restart"
            )
    if state.rows and source.why_not_resumable:
        return _Begun(why_not=source.why_not_resumable)
    if state.rows and state.proof != _plain(source.proof()):
        return _Begun(why_not="nothing proves that its source is still the same")
    raised = set(store[name].fences) - set(state.fences)
    if source.owner is not None and raised:
        return _Begun(why_not="rows were written since whose keys are not known")
    return _Begun(new, state)


def _end(store: Store, name: str, source: Source, state: State) -> None:
    """Step 6."""
    if source.owner is not None:
        source.owner.finish(state.rows)
        store[name].unfence(*state.fences)
    forget_state(store, name)


def _begin(
    store: Store, name: str, spec: FilterSpec, source: Source, wanted: dict[str, Any]
) -> tuple[Rebuild, State]:
    identity = _plain(source.identity())
    fences, had = list(store[name].fences), store[name].stats().keys
    is_declared = wanted["spec"] is not None or wanted["capacity"] is not None
    new = begin(store, name, spec, is_declared=is_declared)
    state = State(new.id, identity, wanted, fences, time.time(), had=had)
    write_state(store, name, state)
    crash_point("rebuild: begun")
    return new, state


def _fill(
    store: Store, new: Rebuild, source: Source, state: State, patience: float, progress: Progress
) -> None:
    """Steps 2 to 4."""
    source.prepare(patience)
    while True:
        try:
            _read(store, new, source, state, progress)
        except Outgrown:
            continue  # from the position that was noted last
        break
    now = _plain(source.identity())
    if now != state.source:
        raise Incomplete(f"the source has changed: {_differences(state.source, now)}")


def _require_own_keys(store: Store, name: str, source: Source, state: State) -> None:
    if why := why_foreign(store[name], source, state):
        raise RebuildError(f"{why}; other_keys (--other-keys) says that this is meant")


def _read(store: Store, new: Rebuild, source: Source, state: State, progress: Progress) -> None:
    """Step 3, from the position of the state to the end of the source."""
    rows, position = state.rows, state.position
    progress(rows)
    batches = source.batches(position)
    # However the loop ends, closing the batches frees the source's connection and its thread.
    with closing(ahead(batches) if source.reads_ahead else batches) as given:
        for batch in given:
            sample(store[new.name], batch.keys, state)
            is_durable = new.feed(batch.keys)
            crash_point("rebuild: batch added")
            rows += batch.rows
            position = batch.position
            if is_durable and not source.why_not_resumable:
                _note(store, new, source, state, rows, position)
            progress(rows)
    new.keep()
    _note(store, new, source, state, rows, None if source.why_not_resumable else position)


def _note(
    store: Store,
    new: Rebuild,
    source: Source,
    state: State,
    rows: int,
    position: Position | None,
) -> None:
    if (state.rows, state.position) != (rows, position):
        state.rows, state.position, state.proof = rows, position, source.proof()
        write_state(store, new.name, state)
        crash_point("rebuild: position noted")


def _discard(store: Store, new: Rebuild) -> None:
    new.discard()
    forget_state(store, new.name)


def _plain(identity: dict[str, Any]) -> dict[str, Any]:
    """The identity as it is read back from a note."""
    found: dict[str, Any] = json.loads(json.dumps(identity))
    return found


def _kind(identity: dict[str, Any]) -> str:
    """The kind of a source; an SQLite database is a file too."""
    return next((name for name in ("table", "select", "file") if name in identity), "")


def _place(identity: dict[str, Any]) -> str:
    """Where a source is, in a word."""
    kind = _kind(identity)
    return f"the {kind} {identity[kind]}" if kind else "another kind"


def _differences(was: dict[str, Any], now: dict[str, Any]) -> str:
    if _kind(was) != _kind(now):  # nothing in common
        return f"{_place(now)}, was {_place(was)}"
    return ", ".join(
        f"{name} is {now.get(name)!r}, was {was.get(name)!r}"
        for name in sorted({*was, *now})
        if was.get(name) != now.get(name)
    )
