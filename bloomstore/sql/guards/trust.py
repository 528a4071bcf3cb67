"""Whether the filter of a guard may be believed in front of the live database.

In: the live table, as each engine of the plugin shows it. Out: `doubt`, which is "" only if all of
this holds:
  1. the live columns have a canonical form, and it is the one the filter was built with;
  2. the database is the one the filter was built from, and the store is not a restored copy;
  3. no migration has invalidated the filter since it was built.
Fences and damage are states of the filter itself, which guard.py checks with each lookup.

Invariant: `doubt` is set before `filter` is replaced and before the keys of another form can be
made. Readers take `filter` first and look at `doubt` afterwards, so a key is never asked of a
filter that came after the key was made, perhaps for another form of the column.

The record of the last build is in the store's notes (record.py). A form that has changed needs a
new filter: the build drops the old one, so that every process loses its handle and reads the record
again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container
from typing import Any, TypeVar

from sqlalchemy.engine import Engine

from bloomstore import BloomStoreError, Filter, Scalable, Store
from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.errors import FilterExists, FilterNotFound, StoreReadOnly
from bloomstore.sql.databases.canonical import Canon
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.key_maker import KeyMaker
from bloomstore.sql.guards.live_table import Live
from bloomstore.sql.guards.record import Record, read_record, write_record
from bloomstore.store.note_names import has_guard

log = logging.getLogger("bloomstore.sql")

T = TypeVar("T")

NOT_BUILT = Reason(ReasonCode.NOT_BUILT, "not built yet")
NOT_SEEN = "its database has not been compared with the filter yet"
INVALID = Reason(ReasonCode.INVALIDATED, "a migration has invalidated it")


class TrustedFilter:
    """The filter of one guard, and whether it may be believed. Safe in several threads."""

    def __init__(self, store: Store, declared: Declared) -> None:
        self.store = store
        self.declared = declared
        self.name = declared.name
        self.doubt = NOT_SEEN
        self.canon: Canon | None = None
        self.own: type | None = None  # values of this type are sent and stored as they are
        self.room: Container[Any] = ()  # the values of that type that the column can hold
        self._keys: KeyMaker | None = None
        self._live: Live | None = None
        # By engine, the token of a build that the engine's database does not have.
        self._distrusted: dict[int, str | None] = {}
        self.lives: dict[int, Live] = {}  # by engine, the live table as it was last seen
        self.filter = self._open()

    def __repr__(self) -> str:
        return f"<guard {self.name}: {self.doubt or 'valid'}>"

    def believed(self) -> Filter | None:
        """The filter if there is no doubt, else None. Reads `filter` before `doubt` (see above)."""
        while True:
            believed = self.filter
            if not self.doubt:
                return believed
            if self._still_doubts():
                return None

    def why_unknown(self) -> str:
        """Why the guard answers UNKNOWN now; "" if it does not."""
        if self.doubt and self._still_doubts():
            return self.doubt
        state = self.with_filter(lambda users: users.state)
        return "" if state.is_certain else str(state)

    def fence(self, reason: str | Reason) -> None:
        """Makes every process answer UNKNOWN until a build has read the rows."""
        with self.store.apart():
            before = self.with_filter(lambda users: len(users.fences))
            self.with_filter(lambda users: users.fence(reason, renew=True))
            after = self.with_filter(lambda users: len(users.fences))
        if after > before:  # one line for each reason, however often it is raised
            log.warning("guard %s answers UNKNOWN until it is built again: %s", self.name, reason)

    # The live database -------------------------------------------------------------

    def meet(self, live: Live, token_before: str = "") -> None:
        """Compares the live database with the record of the build.

        `token_before`: of the record before the database was read; a build may have ended since.
        """
        now = self.record().token
        is_another = live.token is not None and live.token not in (token_before, now)
        self._distrusted[id(live.dialect)] = now if is_another else None
        if self.lives.get(id(live.dialect)) == live:
            self._still_doubts()  # one more connection to a known table: other threads continue
        else:
            self._judge(live)

    def _judge(self, live: Live) -> None:
        # The doubt is set first: no other thread may use a new canon with the old facts.
        self.own = None
        self.canon = self._keys = None
        self.doubt = NOT_SEEN
        self._live = live
        self.lives[id(live.dialect)] = live
        lives = list(self.lives.values())
        doubts = (key_form.doubt_of(self.declared, each) for each in lives)
        doubt = next(filter(None, doubts), "")
        if not doubt and any(each.identity != live.identity for each in lives):
            doubt = "the plugin listens to engines of several databases"
        if not doubt and any(each.table.schema != live.table.schema for each in lives):
            doubt = "the plugin listens to engines that find the table in several schemas"
        if not doubt:
            keys = KeyMaker(self.declared, live)
            self._keys, self.canon = keys, keys.canon
            if keys.is_plain:  # values of its own type need no check either
                self.room = self.canon.room
                self.own = self.canon.own
        self.doubt = doubt or self._doubt_of_record()
        if doubt and self.record().form:
            self._tell(doubt)

    def _tell(self, doubt: str | Reason) -> None:
        """Fences a sound filter for other processes; after an error the next doubt tries again."""
        try:
            if self.filter.state.is_certain:
                self.fence(doubt)
        except StoreReadOnly:
            pass
        except BloomStoreError as error:
            log.warning("guard %s could not be fenced (%s): %s", self.name, doubt, error)

    def forget_database(self) -> None:
        """Called when the plugin listens to no engine any more: later writes go unseen."""
        self.doubt = NOT_SEEN
        self.own = None
        self.canon = self._keys = None
        self._live = None
        self.lives.clear()
        self._distrusted.clear()

    def form(self) -> dict[str, Any]:
        """The form of the filter's keys: everything that they depend on."""
        assert self._live is not None
        return key_form.form_of(self.declared, self._live)

    def seen_by(self, engine: Engine) -> Live | None:
        """The live table as the engine last showed it, if it is not in doubt."""
        return None if self.canon is None else self.lives.get(id(engine.dialect))

    @property
    def live(self) -> Live:
        """The live table, when it was last seen."""
        assert self._live is not None
        return self._live

    @property
    def live_names(self) -> frozenset[str]:
        """The names of the table's columns, when it was last seen."""
        return frozenset(() if self._live is None else self._live.table.columns)

    @property
    def has_outbox(self) -> bool:
        """Whether the guard is declared with an outbox."""
        return self.declared.guard.feed == "outbox"

    # The record --------------------------------------------------------------------

    def record(self) -> Record:
        """The record of the last build; without a form if there was none."""
        return read_record(self.store, self.name) or self.fresh_record()

    def fresh_record(self) -> Record:
        """The record of a filter that holds nothing yet."""
        return Record.of(self.declared)

    def write_record(self, record: Record) -> None:
        """Writes the record; it is durable when this returns."""
        write_record(self.store, self.name, record)

    def _doubt_of_record(self) -> str:
        assert self._live is not None
        record = self.record()
        if not record.is_readable:
            return (
                f"its record has version {record.version}: a later version of bloomstore built it"
            )
        if not record.form:
            return NOT_BUILT.text
        if record.guarded != self.fresh_record().guarded:
            return f"the filter {self.name!r} was built for {record.table} {record.columns}"
        if record.store != self.store.incarnation:
            return "the store is a restored copy"
        if record.filter_number != self.filter.number:
            self.doubt = self.doubt or NOT_SEEN  # before the filter is replaced, see believed
            with contextlib.suppress(FilterNotFound):
                self.filter = self.store[self.name]  # a build elsewhere may have replaced it
            if record.filter_number != self.filter.number:
                return "its filter was dropped and created again since it was built"
        for name, value in self._live.identity.items():
            if record.database.get(name) != value:
                was = record.database.get(name, "nothing")
                return f"another database: its {name} is {value}, was {was} when it was built"
        if record.token in self._distrusted.values():
            return "the database was restored, or built with another store, since it was built"
        reason: str | Reason = ""
        if record.form != self.form():
            reason = f"the column is {self.form()}, was {record.form} when it was built"
        elif self._live.epoch > record.epoch:  # if lower, this process has not read the new epoch
            reason = INVALID
        elif self.has_outbox is not bool(record.feed):  # keys come another way than before
            if self.has_outbox:
                return NOT_BUILT.text
            return "it was built with an outbox: build it again"
        if reason:
            self._tell(reason)
        return str(reason)

    def _still_doubts(self) -> bool:
        """Whether the doubt stands; another process may have built the filter by now."""
        if self._live is not None and self.canon is not None:
            self.doubt = self._doubt_of_record()
        return bool(self.doubt)

    def _has_its_form(self) -> bool:
        """Whether keys made now fit the filter, whatever else is in doubt."""
        record = self.record()
        return (
            self.canon is not None
            and record.is_readable
            and record.guarded == self.fresh_record().guarded
            and record.known_form in ({}, self.form())
        )

    # The filter --------------------------------------------------------------------

    def with_filter(self, act: Callable[[Filter], T]) -> T:
        """Calls `act` with the filter; if it was replaced, with the one that has its name now."""
        try:
            return act(self.filter)
        except FilterNotFound:
            self.reopen()
            return act(self.filter)

    def _open(self) -> Filter:
        guard = self.declared.guard
        while True:
            try:
                return self.store[self.name]
            except FilterNotFound:
                try:
                    self.create()
                except (FilterExists, StoreReadOnly) as error:
                    if isinstance(error, StoreReadOnly):
                        raise StoreReadOnly(f"guard {guard!r} has no filter yet: {error}") from None

    def create(self, spec: Scalable | None = None) -> Filter:
        """Creates a filter that is fenced until it is built, after its record."""
        guard = self.declared.guard
        if not has_guard(self.store.notes, self.name):  # other programs look for the record first
            self.write_record(self.fresh_record())
        return self.store.create(
            self.name, spec or guard.spec, durability=guard.durability, fence=NOT_BUILT
        )

    def reopen(self) -> None:
        """Opens the filter that now has the name; it may have another key form."""
        self.doubt = NOT_SEEN  # before the filter is replaced, see believed
        try:
            self.filter = self._open()
            if self._live is not None:
                self._judge(self._live)
        except BloomStoreError as error:
            self.doubt = str(error)
