"""Builds guards while the application runs: afterwards every visible row has its key.

The order is that of CREATE INDEX CONCURRENTLY; ceremony.py has its steps and their reasons.

A filter that is only fenced is caught up: its keys stay and the missing ones are added. A filter
whose column, database or store has changed is replaced by an empty one. The first build gives the
filter one stage for the rows there are, as a rebuild does: every further stage slows each lookup.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from sqlalchemy.engine import Connection, Engine

from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.errors import BuildError, FilterExists, FilterNotFound, Incomplete
from bloomstore.rebuild.plan import HEADROOM
from bloomstore.sql.build.ceremony import Ceremony
from bloomstore.sql.build.fetch import count_rows, whole_rows
from bloomstore.sql.build.snapshot import NotWhole, snapshot
from bloomstore.sql.databases.canonical import Unclear, stored_keys
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.outbox.position import new_snapshot
from bloomstore.store.view import StateName

BEING_BUILT = Reason(ReasonCode.BEING_BUILT, "being built")
CHUNK = 65_536  # rows: keys of one durable add


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of a build for one guard."""

    name: str
    rows: int
    keys: int
    still: str = ""  # why the guard answers UNKNOWN nevertheless


def build_guard(
    guard: ActiveGuard, engine: Engine, *, patience: float, progress: Callable[[int], None]
) -> Built:
    """Makes one guard valid; call it under the build lock. A BuildError leaves it no worse."""
    if guard.canon is None:
        raise BuildError(f"guard {guard.name} cannot be built: {guard.doubt}")
    try:
        return _build(guard, engine, patience, progress)
    except NotWhole as why:
        raise BuildError(f"guard {guard.name} cannot be built: {why}") from None
    except StillOpen as error:
        raise BuildError(
            f"guard {guard.name} cannot be built: transactions are still open after"
            f" {patience:g} s: {error}; end them or allow more patience"
        ) from None
    except (Unclear, Incomplete) as why:
        raise BuildError(f"guard {guard.name}: {why}") from None


def _build(
    guard: ActiveGuard, engine: Engine, patience: float, progress: Callable[[int], None]
) -> Built:
    ceremony = Ceremony(guard.store, engine, guard.declared, guard.live)
    ceremony.require_source()
    _make_filter(guard, engine, ceremony)
    # From here on the outbox, if there is one, has the keys that writers do not know.
    deleted = ceremony.announce({"build": ""}).deleted  # keys of a filter that is caught up stay
    tokens = list(guard.filter.fences) or [guard.filter.fence(BEING_BUILT)]
    ceremony.wait_for_writers(patience)
    with snapshot(engine, ceremony.why_another) as connection:
        base = new_snapshot(connection) if ceremony.has_outbox else {}
        rows, keys = _scan(guard, connection, progress)
    ceremony.flush_commits()
    if guard.form() != ceremony.form:
        raise BuildError(f"guard {guard.name}: the column was altered during the build")
    ceremony.complete(rows, ceremony.leave_token(), base, deleted)
    guard.filter.unfence(*tokens)
    return Built(guard.name, rows, keys, guard.why_unknown())


def _make_filter(guard: ActiveGuard, engine: Engine, ceremony: Ceremony) -> None:
    """Replaces a filter of another form, and one that was never built if it is small.

    Keys and fences that go with it are of rows that are committed, or of transactions that the
    build waits for.
    """
    is_fine = guard.filter.state.name in (StateName.SOUND, StateName.FENCED)
    is_useless = ceremony.is_another_filter() or not is_fine
    if guard.record().form and not is_useless:
        return
    spec = guard.declared.guard.spec
    with snapshot(engine) as connection:
        keys = ceil(HEADROOM * count_rows(connection, guard.declared.columns))
    if is_useless:
        ceremony.write(ceremony.fresh_record())
    if is_useless or keys > spec.initial_capacity:
        with contextlib.suppress(FilterNotFound):
            guard.store.drop(guard.name)
        with contextlib.suppress(FilterExists):  # another process has just created it
            guard.create(replace(spec, initial_capacity=max(keys, spec.initial_capacity)))
        guard.reopen()


def _scan(
    guard: ActiveGuard, connection: Connection, progress: Callable[[int], None]
) -> tuple[int, int]:
    """Adds the key of every row of the snapshot; proves that none was left out."""
    assert guard.canon is not None
    rows = keys = 0
    with contextlib.closing(whole_rows(connection, guard.declared.columns, CHUNK)) as parts:
        for part in parts:
            keys += guard.filter.add_many(stored_keys(guard.canon, part))
            rows += len(part)
            progress(rows)
    return rows, keys
