"""Builds guards while the application runs: every row that can be seen has its key afterwards.

The order is that of CREATE INDEX CONCURRENTLY (sql.md D14):
  1. the filter is fenced and every writer adds to it that knows the column's form, which the note
     tells from here on; the others fence it. The fences of this moment are remembered;
  2. every statement in flight and every transaction that is open now ends: whatever was written
     without its key, or behind a remembered fence, is committed or gone;
  3. one snapshot is read to its end, raw, and counted by the database as well;
  4. the note says what the filter was built with, then the remembered fences are lowered.
Fences that were raised after step 1 stay: their rows may be younger than the snapshot.

A filter that is only fenced is caught up: its keys stay and the missing ones are added. One whose
column, database or store has changed is replaced by a new one. At the first build the filter gets
one stage for the rows there are, as from a rebuild: every stage more is one more to ask.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.engine import Connection, Engine

from bloomstore.errors import BloomStoreError, FilterExists, FilterNotFound
from bloomstore.rebuild.plan import HEADROOM
from bloomstore.sql.build.fetch import as_stored, parts_of
from bloomstore.sql.build.snapshot import NotWhole, outside, require_source, snapshot
from bloomstore.sql.capture.autocommit_lock import Flight
from bloomstore.sql.databases import database_of
from bloomstore.sql.databases.canonical import Unclear, stored_keys
from bloomstore.sql.databases.contract import StillOpen
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.key_form import why_another as why_another_form
from bloomstore.sql.outbox import catch_up
from bloomstore.sql.schema.incarnation import leave_token

CHUNK = 65_536  # rows: keys of one durable add


class BuildError(BloomStoreError):
    """A guard could not be built; it goes on answering UNKNOWN."""


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did to one guard."""

    name: str
    rows: int
    keys: int
    still: str = ""  # why it answers UNKNOWN all the same


def build_guard(
    guard: ActiveGuard,
    engine: Engine,
    flight: Flight,
    *,
    patience: float,
    progress: Callable[[int], None],
) -> Built:
    """Makes one guard valid; for the only builder. Raises BuildError, changes nothing for worse."""
    if guard.canon is None:
        raise BuildError(f"guard {guard.name} cannot be built: {guard.doubt}")
    try:
        return _build(guard, engine, flight, patience, progress)
    except NotWhole as why:
        raise BuildError(f"guard {guard.name} cannot be built: {why}") from None


def _build(
    guard: ActiveGuard,
    engine: Engine,
    flight: Flight,
    patience: float,
    progress: Callable[[int], None],
) -> Built:
    require_source(engine)
    form, epoch = guard.form(), guard.epoch
    _make_filter(guard, engine)
    note = guard.note()
    deleted = note.deleted  # their keys stay in a filter that is caught up
    note.building = form
    if guard.feed is not None:
        note.feed_building = {"build": ""}  # from here on the outbox has what writers do not know
    guard.write_note(note)
    tokens = list(guard.filter.fences)
    if not tokens:
        tokens = [guard.filter.fence("being built")]
    database = database_of(engine.dialect)
    try:
        flight.wait(patience)
        with outside(engine) as connection:
            database.wait_for_writers(connection, patience)
    except StillOpen as error:
        raise BuildError(
            f"guard {guard.name}: what was open has not ended after {patience:g} s: {error}"
        ) from None
    why_another = partial(why_another_form, guard.declared, engine.dialect, expected=form)
    with snapshot(engine, why_another) as connection:
        base = {} if guard.feed is None else catch_up.begin(connection)
        rows, keys = _scan(guard, connection, progress)
    if guard.feed is not None:
        catch_up.seal(engine, guard.name)
    if guard.form() != form:
        raise BuildError(f"guard {guard.name}: the column was altered during the build")
    note = guard.fresh_note()
    note.form, note.database, note.store = form, guard.identity(), guard.store.incarnation
    note.token, note.filter_number = leave_token(engine, guard.name), guard.filter.number
    note.rows, note.deleted, note.epoch, note.feed = rows, deleted, epoch, base
    guard.write_note(note)
    guard.filter.unfence(*tokens)
    return Built(guard.name, rows, keys, guard.why_unknown())


def _make_filter(guard: ActiveGuard, engine: Engine) -> None:
    """Replaces a filter of another form, and one that was never built if it is small.

    Keys and fences that go with it are of rows that are committed, or of transactions that the
    build waits for.
    """
    note, fresh = guard.note(), guard.fresh_note()
    is_another = note.form and (
        note.place != fresh.place
        or note.form != guard.form()
        or note.database != guard.identity()
        or note.store != guard.store.incarnation
        or note.filter_number != guard.filter.number
        or bool(note.feed) is (guard.feed is None)  # its keys came in another way
    )
    is_useless = is_another or guard.filter.state.name not in ("sound", "fenced")
    if note.form and not is_useless:
        return
    spec = guard.declared.guard.spec
    keys = ceil(HEADROOM * _count(guard, engine))
    if is_useless:
        guard.write_note(fresh)
    if is_useless or keys > spec.initial_capacity:
        with contextlib.suppress(FilterNotFound):
            guard.store.drop(guard.name)
        with contextlib.suppress(FilterExists):  # another process has missed it already
            guard.create(replace(spec, initial_capacity=max(keys, spec.initial_capacity)))
        guard.reopen()


def _count(guard: ActiveGuard, engine: Engine) -> int:
    with snapshot(engine) as connection:
        return int(connection.execute(_counting(guard)).scalar_one())


def _counting(guard: ActiveGuard) -> Select[Any]:
    present = [column.is_not(None) for column in guard.declared.columns]
    return select(func.count()).select_from(guard.declared.table).where(*present)


def _scan(
    guard: ActiveGuard, connection: Connection, progress: Callable[[int], None]
) -> tuple[int, int]:
    """Adds the key of every row of the snapshot; proves that none was left out."""
    columns = guard.declared.columns
    raw = [as_stored(column, connection.dialect) for column in columns]
    present = [column.is_not(None) for column in columns]
    counted = connection.execute(_counting(guard)).scalar_one()
    rows = keys = 0
    assert guard.canon is not None
    statement = select(*raw).where(*present)
    with contextlib.closing(parts_of(connection, statement, CHUNK)) as parts:
        for part in parts:
            try:
                found = stored_keys(guard.canon, part)
            except Unclear as why:
                raise BuildError(f"guard {guard.name}: {why}") from None
            keys += guard.filter.add_many(found)
            rows += len(part)
            progress(rows)
    if rows != counted:
        raise BuildError(f"guard {guard.name}: read {rows} rows of {counted}")
    return rows, keys
