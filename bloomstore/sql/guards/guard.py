"""A guard at work: its filter, the canonical form of its column, and whether it may be believed.

In: values as the application has them. Out: an Answer. A guard says ABSENT only if all of this
holds; anything else is UNKNOWN, with the reason:
  1. its filter is sound and has no fence (the catalog says so, to every process);
  2. the live column has a canonical form, and it is the one the filter was built with;
  3. the database is the one the filter was built from, and the store is no restored copy.

What the filter was built with is in the store's notes, as JSON under "guard/<name>". A form that
has changed needs a new filter: the build drops the old one, so that every process loses its
handle and looks at the note again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, TypeVar

from bloomstore import BloomStoreError, Filter, Scalable, Store
from bloomstore.errors import (
    FilterExists,
    FilterFull,
    FilterNotFound,
    KeyTypeError,
    KeyValueError,
    StoreReadOnly,
)
from bloomstore.keys import Key
from bloomstore.sql.answer import Answer
from bloomstore.sql.databases.canonical import Canon, Unclear
from bloomstore.sql.guards import key_form
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.live_table import Live
from bloomstore.sql.guards.metrics import Metrics
from bloomstore.sql.guards.record import PREFIX, Note
from bloomstore.sql.guards.sent_values import Sending
from bloomstore.sql.outbox.catch_up import INVALID, Feed

if TYPE_CHECKING:
    from bloomstore.sql.capture.pending import Pending

log = logging.getLogger("bloomstore.sql")

T = TypeVar("T")

NOT_BUILT = "not built yet"
DELETES_NOTED = 1000  # rows: a note is a durable commit
WRITTEN = "this transaction has written keys that are not known"
NOT_SEEN = "its database has not been seen yet"


class ActiveGuard:
    """One guard of one plugin. Safe in several threads."""

    def __init__(self, store: Store, declared: Declared) -> None:
        self.store = store
        self.declared = declared
        self.name = declared.name
        self.metrics = Metrics()
        self.doubt = NOT_SEEN
        self.canon: Canon | None = None
        self.own: type | None = None  # values of this type are sent and kept as they are
        self.room: Container[Any] = ()  # those of them that the column can hold
        self._stores_own = False  # all of them, none is replaced
        self._live: Live | None = None
        # By engine a build of which its database knows nothing.
        self._distrusted: dict[int, str | None] = {}
        self.lives: dict[int, Live] = {}  # the last of each engine
        self._sending: Sending | None = None
        self.feed = Feed(self) if declared.guard.feed == "outbox" else None
        # Whether a key takes a commit, as far as is declared.
        self.is_durable = (declared.guard.durability or store.options.durability) == "commit"
        self.filter = self._open()

    # Asking ------------------------------------------------------------------------

    def ask(self, value: object, pending: Pending | None = None) -> Answer:
        """The answer for a value as the application has it; a tuple for a composite key."""
        try:
            believed = self.believed()
            if believed is None:
                return self.unknown(self.doubt)
            return self._ask_key(believed, self.key_of(value), pending)
        except (Unclear, BloomStoreError) as why:
            return self.unknown(str(why))

    def believed(self) -> Filter | None:
        """The filter, if there is no doubt: read first, because `reopen` doubts before it replaces.

        So a key is never asked of a filter that came after the key was made, perhaps for another
        form of the column.
        """
        while True:
            believed = self.filter
            if not self.doubt:
                return believed
            if self._still_doubts():
                return None

    def _ask_key(self, believed: Filter, key: Key, pending: Pending | None = None) -> Answer:
        if pending is not None:
            if self in pending.unknown:
                return self.unknown(WRITTEN)
            if key in pending.keys.get(self, ()):
                self.metrics.maybe += 1
                return Answer.MAYBE
        try:
            if key not in believed:
                self.metrics.absent += 1
                return Answer.ABSENT
            if believed.was_sound:
                self.metrics.maybe += 1
                return Answer.MAYBE
            return self.unknown(str(believed.state))
        except BloomStoreError as error:
            self.reopen()
            return self.unknown(str(error))

    def may_be_present(self, value: object) -> bool:
        """Whether the filter has the value, where that says everything; a hit costs no more."""
        asked = self.filter  # before the doubt, see believed
        if type(value) is not self.own or self.doubt or self.feed is not None:
            return False
        try:
            found = value in asked and asked.was_sound
        except BloomStoreError:
            return False
        self.metrics.maybe += found
        return found

    def is_absent(self, value: object, pending: Pending | None = None) -> bool:
        """`ask(...) is ABSENT`, as fast as it can be said for the usual types."""
        asked = self.filter  # before the doubt, see believed
        if type(value) is self.own and not self.doubt and not pending and value in self.room:
            return self._ask_key(asked, value) is Answer.ABSENT  # type: ignore[arg-type]
        return self.ask(value, pending) is Answer.ABSENT

    def key_of(self, value: object) -> Key:
        """The canonical key of a value as the application has it. Raises Unclear."""
        if type(value) is self.own and value in self.room:
            return value  # type: ignore[return-value]
        if self._sending is None:
            raise Unclear(self.doubt)
        return self._sending.key_of(value)

    def stores(self, value: object, type_: Any) -> bool:
        """Whether a value, sent as its own type says, is the key of its row as it is."""
        return (
            type(value) is self.own
            and (type_ is None or type_ is self.declared.columns[0].type)
            and self._stores_own
        )

    def key_to_store(self, values: list[object], types: list[Any]) -> Key | None:
        """The key of the row that these values make; None if it has none. Raises Unclear."""
        if self._sending is None:
            raise Unclear(self.doubt)
        return self._sending.key_to_store(values, types)

    def __repr__(self) -> str:
        return f"<guard {self.name}: {self.doubt or 'valid'}>"

    def unknown(self, reason: str) -> Answer:
        """UNKNOWN, counted."""
        self.metrics.count_unknown(reason)
        return Answer.unknown(reason)

    # Writing -----------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        """Whether an outbox has what is written, as its filter was built, or is being built."""
        return self.feed is not None and bool((note := self.note()).feed or note.feed_building)

    def fence(self, reason: str) -> None:
        """Makes every process answer UNKNOWN until a build has read the rows."""
        with self.store.batches.apart():
            standing = self.with_filter(lambda found: found.fences).values()
            self.with_filter(lambda found: found.fence(reason, renew=True))
        if reason not in standing:  # one line for each, however often it is raised
            log.warning("guard %s answers UNKNOWN until it is built again: %s", self.name, reason)

    def add(self, keys: set[Key]) -> None:
        """Adds keys durably; a filter of another form is fenced instead."""
        if self.doubt and self._still_doubts() and not self._has_its_form():
            self.fence(f"written in doubt: {self.doubt}")
            return
        try:
            if len(keys) == 1:
                (key,) = keys
                self.filter.add(key)
            else:
                self.filter.add_many(list(keys))
        except (KeyTypeError, KeyValueError, FilterFull) as error:
            # The database has taken the row: no transaction is lost for want of a key.
            self.fence(f"a key cannot be added: {error}")
        except FilterNotFound:
            self.reopen()
            if self._has_its_form():
                self.with_filter(lambda found: found.add_many(list(keys)))
            else:
                self.fence("written while its filter was replaced")

    def with_filter(self, act: Callable[[Filter], T]) -> T:
        """Acts on the filter; if it was replaced, on the one that has its name now."""
        try:
            return act(self.filter)
        except FilterNotFound:
            self.reopen()
            return act(self.filter)

    def count_deleted(self, count: int) -> None:
        """Deleted rows leave their keys behind; how many is written down now and then."""
        self.metrics.deleted += count
        if self.metrics.deleted >= DELETES_NOTED:
            self.note_deleted()

    def note_deleted(self) -> None:
        """Adds what this process has counted to the note, which outlives it."""
        count, self.metrics.deleted = self.metrics.deleted, 0

        def add(raw: bytes | None) -> bytes | None:
            if raw is None or not (note := Note.unpack(raw)).form:
                return None
            note.deleted += count
            return note.pack()

        if count:  # a build in another process may write the note at the same time
            self.store.notes.change(PREFIX + self.name, add)

    # Trust -------------------------------------------------------------------------

    def meet(self, live: Live, token_before: str = "") -> None:
        """Compares the live database with what the filter was built from.

        `token_before`: of the note before the database was read; a build may have ended since.
        """
        now = self.note().token
        is_another = live.token is not None and live.token not in (token_before, now)
        self._distrusted[id(live.dialect)] = now if is_another else None
        if self.lives.get(id(live.dialect)) == live:
            self._still_doubts()  # one more connection to what is known: other threads go on
        else:
            self._judge(live)

    def _judge(self, live: Live) -> None:
        # First the doubt: no other thread may use a new canon with what was known before.
        self.own = None
        self.canon = self._sending = None
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
            sending = Sending(self.declared, live)
            self._sending, self.canon = sending, sending.canon
            if sending.is_plain:  # values of its own type need no check either
                self.room = self.canon.room
                self._stores_own = not self.canon.replaced
                self.own = self.canon.own
        self.doubt = doubt or self._doubt_of_note()
        if doubt and self.note().form:
            self._tell(doubt)

    def _tell(self, doubt: str) -> None:
        """Fences a sound filter for the others; if that fails, whoever asks next tries again."""
        try:
            if self.filter.state.is_certain:
                self.fence(doubt)
        except StoreReadOnly:
            pass
        except BloomStoreError as error:
            log.warning("guard %s could not be fenced (%s): %s", self.name, doubt, error)

    def forget_database(self) -> None:
        """Nobody listens any more: what is written now is not seen."""
        self.doubt = NOT_SEEN
        self.own = None
        self.canon = self._sending = None
        self._live = None
        self.lives.clear()
        self._distrusted.clear()

    def form(self) -> dict[str, Any]:
        """What the keys of the filter depend on."""
        assert self._live is not None
        return key_form.form_of(self.declared, self._live)

    def note(self) -> Note:
        """What the filter was built with; an empty form if it never was."""
        found = self.store.notes.get(PREFIX + self.name)
        return self.fresh_note() if found is None else Note.unpack(found)

    def fresh_note(self) -> Note:
        """The note of a filter that holds nothing yet."""
        table = self.declared.table
        return Note(table.name, table.schema, [column.name for column in self.declared.columns])

    def identity(self) -> dict[str, str]:
        """Which database this is."""
        return {} if self._live is None else self._live.identity

    def why_unknown(self) -> str:
        """Why the guard answers UNKNOWN now; "" if it does not."""
        if self.doubt and self._still_doubts():
            return self.doubt
        state = self.with_filter(lambda found: found.state)
        return "" if state.is_certain else str(state)

    def write_note(self, note: Note) -> None:
        """Keeps it in the catalog."""
        self.store.notes[PREFIX + self.name] = note.pack()

    def _doubt_of_note(self) -> str:
        assert self._live is not None
        note = self.note()
        if not note.form:
            return NOT_BUILT
        if note.place != self.fresh_note().place:
            return f"the filter {self.name!r} was built for {note.table} {note.columns}"
        if note.store != self.store.incarnation:
            return "the store is a restored copy"
        if note.filter_number != self.filter.number:
            self.doubt = self.doubt or NOT_SEEN  # before the filter is replaced, see believed
            with contextlib.suppress(FilterNotFound):
                self.filter = self.store[self.name]  # a build elsewhere may have replaced it
            if note.filter_number != self.filter.number:
                return "its filter was dropped and made again since it was built"
        for name, value in self._live.identity.items():
            if note.database.get(name) != value:
                was = note.database.get(name, "nothing")
                return f"another database: its {name} is {value}, was {was} when it was built"
        if note.token in self._distrusted.values():
            return "the database was restored, or built with another store, since it was built"
        doubt = ""
        if note.form != self.form():
            doubt = f"the column is {self.form()}, was {note.form} when it was built"
        elif self._live.epoch > note.epoch:  # if it is lower, this process has not seen it yet
            doubt = INVALID
        elif (self.feed is None) is bool(note.feed):  # keys came, or will come, in another way
            return NOT_BUILT if self.feed else "it was built with an outbox: build it again"
        if doubt:
            self._tell(doubt)
        return doubt

    @property
    def live_names(self) -> frozenset[str]:
        """The names of the table's columns, when it was last seen."""
        return frozenset(() if self._live is None else self._live.table.columns)

    @property
    def epoch(self) -> int:
        """Of the database's registry, when it was last seen."""
        return 0 if self._live is None else self._live.epoch

    def _still_doubts(self) -> bool:
        """Whether the doubt stands; another process may have built the filter by now."""
        if self._live is not None and self.canon is not None:
            self.doubt = self._doubt_of_note()
        return bool(self.doubt)

    def _has_its_form(self) -> bool:
        """Whether keys of now fit into the filter, whatever else is in doubt."""
        note = self.note()
        return (
            self.canon is not None
            and note.place == self.fresh_note().place
            and (note.building or note.form) in ({}, self.form())
        )

    # The filter --------------------------------------------------------------------

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
        """A new filter, fenced until it is built; the note says of what."""
        guard = self.declared.guard
        if PREFIX + self.name not in self.store.notes:
            self.write_note(self.fresh_note())  # other programs look for it when the filter comes
        return self.store.create(
            self.name, spec or guard.spec, durability=guard.durability, fence=NOT_BUILT
        )

    def reopen(self) -> None:
        """The filter was replaced: another one, perhaps with another form, has its name."""
        self.doubt = NOT_SEEN  # before the filter is replaced, see believed
        try:
            self.filter = self._open()
            if self._live is not None:
                self._judge(self._live)
        except BloomStoreError as error:
            self.doubt = str(error)
