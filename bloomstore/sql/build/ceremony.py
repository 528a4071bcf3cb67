"""The steps that make a guard valid, in the order that builds and rebuilds share.

  1. The server must have every row (snapshot.py), and one builder works at a time.
  2. A filter that was built for another form, table, database or store is replaced by an empty
     one, fenced until the end.
  3. The record announces the form of the keys (`building`): from here on every writer that knows
     the form adds its keys, the others raise a fence. The fences of this moment are remembered.
  4. Statements under AUTOCOMMIT and open transactions end: a row that was written without its key,
     or behind a remembered fence, is committed or gone.
  5. One snapshot is read to its end, raw, and counted by the database as well.
  6. A token is left in the database, and the record describes this build of the filter.
  7. The remembered fences are lowered. Fences that were raised after step 3 stay: their rows may be
     younger than the snapshot.

build.py takes all steps in place. A rebuild has its own order around them (rebuild/order.py) and
waits for readers before it switches; guard_source.py takes these steps for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy.engine import Connection, Engine

from bloomstore import Store
from bloomstore.sql.build.build_lock import only_builder
from bloomstore.sql.build.snapshot import outside, require_source
from bloomstore.sql.capture.autocommit_lock import AutocommitLock
from bloomstore.sql.databases import database_of
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.live_table import Live
from bloomstore.sql.guards.record import Record, read_record, write_record
from bloomstore.sql.outbox.position import flush_commits
from bloomstore.sql.schema.incarnation import leave_token


class Ceremony:
    """The steps for the filter of one guard. `live` is the table as the build has seen it."""

    def __init__(self, store: Store, engine: Engine, declared: Declared, live: Live) -> None:
        self._store = store
        self._engine = engine
        self._declared = declared
        self._database = database_of(engine.dialect)
        self.live = live

    @property
    def name(self) -> str:
        """The name of the guard and its filter."""
        return self._declared.name

    @property
    def has_outbox(self) -> bool:
        """Whether an outbox has the keys of rows that are written during the build."""
        return self._declared.guard.feed == "outbox"

    @property
    def form(self) -> dict[str, Any]:
        """The form of the keys: type, collation and everything else that they depend on."""
        return key_form.form_of(self._declared, self.live)

    # 1
    def held(self) -> AbstractContextManager[None]:
        """A block in which no other build of the store's guards runs."""
        return only_builder(self._store.path)

    def require_source(self) -> None:
        """Raises NotWhole if the server may lack rows."""
        require_source(self._engine)

    # 2
    def is_another_filter(self) -> bool:
        """Whether the filter was built for another table, form, database, store or feed."""
        return self.record().differs_from(self._expected(), has_outbox=self.has_outbox)

    # 3
    def announce(self, snapshot: dict[str, Any]) -> Record:
        """Tells every writer the form of the keys; `snapshot` is where an outbox takes over."""
        record = self.record()
        record.building = self.form
        if self.has_outbox:
            record.feed_building = snapshot
        self.write(record)
        return record

    # 4
    def wait_for_writers(self, patience: float) -> None:
        """Returns when every statement and transaction of this moment has ended. StillOpen."""
        AutocommitLock(self._store.path).wait(patience)
        self._wait(self._database.wait_for_writers, patience)

    def wait_for_readers(self, patience: float) -> None:
        """Returns when every snapshot of this moment has ended. StillOpen."""
        self._wait(self._database.wait_for_readers, patience)

    # 5
    def why_another(self, raw: Any) -> str:
        """Why a raw connection would read another table than `live`; "" if it reads the same."""
        return key_form.why_another(self._declared, self._engine.dialect, raw, self.form)

    def flush_commits(self) -> None:
        """Makes the server flush the commits that were read, where an outbox relies on it."""
        if self.has_outbox:
            flush_commits(self._engine, self.name)

    # 6
    def leave_token(self) -> str:
        """Leaves a new token of this guard in the database, and returns it."""
        return leave_token(self._engine, self.name)

    def complete(self, rows: int, token: str, snapshot: dict[str, Any], deleted: int = 0) -> None:
        """Writes the record that makes the guard valid."""
        record = self._expected()
        record.token, record.epoch, record.feed = token, self.live.epoch, snapshot
        record.rows, record.deleted = rows, deleted
        self.write(record)

    # The record --------------------------------------------------------------------

    def record(self) -> Record:
        """The stored record; without a form if there is none."""
        return read_record(self._store, self.name) or self.fresh_record()

    def fresh_record(self) -> Record:
        """The record of a filter that holds nothing yet."""
        return Record.of(self._declared)

    def write(self, record: Record) -> None:
        """Writes the record; it is durable when this returns."""
        write_record(self._store, self.name, record)

    def _expected(self) -> Record:
        """The record that a build would write now, as far as it is known in advance."""
        record = self.fresh_record()
        record.form, record.database = self.form, self.live.identity
        record.store = self._store.incarnation
        record.filter_number = self._store[self.name].number if self.name in self._store else -1
        return record

    def _wait(self, wait: Callable[[Connection, float], None], patience: float) -> None:
        with outside(self._engine) as connection:
            wait(connection, patience)
