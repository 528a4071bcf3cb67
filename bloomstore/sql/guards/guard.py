"""A guard at work: it answers lookups and takes the keys of written rows.

In: values as the application has them. Out: an Answer. A guard says ABSENT only if its filter is
believed (trust.py), is sound and has no fence, which the catalog tells to every process; anything
else is UNKNOWN, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bloomstore import BloomStoreError, Filter, Store
from bloomstore.errors import FilterFull, FilterNotFound, KeyTypeError, KeyValueError
from bloomstore.keys import Key
from bloomstore.sql.answer import Answer
from bloomstore.sql.databases.canonical import Unclear
from bloomstore.sql.guards.contract import KeyFeed, OwnWrites
from bloomstore.sql.guards.declaration import Declared
from bloomstore.sql.guards.metrics import Metrics
from bloomstore.sql.guards.record import PREFIX, Note
from bloomstore.sql.guards.trust import TrustedFilter

DELETES_NOTED = 1000  # rows: a note is a durable commit
WRITTEN = "this transaction has written keys that are not known"


class ActiveGuard(TrustedFilter):
    """One guard of one plugin. Safe in several threads."""

    def __init__(
        self,
        store: Store,
        declared: Declared,
        make_feed: Callable[[ActiveGuard], KeyFeed] | None = None,
    ) -> None:
        super().__init__(store, declared)
        self.metrics = Metrics()
        self.feed = make_feed(self) if make_feed is not None and self.has_outbox else None
        # Whether a key takes a commit, as far as is declared.
        self.is_durable = (declared.guard.durability or store.options.durability) == "commit"

    # Asking ------------------------------------------------------------------------

    def ask(self, value: object, pending: OwnWrites | None = None) -> Answer:
        """The answer for a value as the application has it; a tuple for a composite key."""
        try:
            believed = self.believed()
            if believed is None:
                return self.unknown(self.doubt)
            return self._ask_key(believed, self.key_of(value), pending)
        except (Unclear, BloomStoreError) as why:
            return self.unknown(str(why))

    def _ask_key(self, believed: Filter, key: Key, pending: OwnWrites | None = None) -> Answer:
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
        asked = self.filter  # before the doubt, see trust.py
        if type(value) is not self.own or self.doubt or self.feed is not None:
            return False
        try:
            found = value in asked and asked.was_sound
        except BloomStoreError:
            return False
        self.metrics.maybe += found
        return found

    def is_absent(self, value: object, pending: OwnWrites | None = None) -> bool:
        """`ask(...) is ABSENT`, as fast as it can be said for the usual types."""
        asked = self.filter  # before the doubt, see trust.py
        if type(value) is self.own and not self.doubt and not pending and value in self.room:
            return self._ask_key(asked, value) is Answer.ABSENT  # type: ignore[arg-type]
        return self.ask(value, pending) is Answer.ABSENT

    def unknown(self, reason: str) -> Answer:
        """UNKNOWN, counted."""
        self.metrics.count_unknown(reason)
        return Answer.unknown(reason)

    # Keys --------------------------------------------------------------------------

    def key_of(self, value: object) -> Key:
        """The canonical key of a value as the application has it. Raises Unclear."""
        if type(value) is self.own and value in self.room:
            return value  # type: ignore[return-value]
        keys = self._keys  # once: another thread may forget it
        if keys is None:
            raise Unclear(self.doubt)
        return keys.key_of(value)

    def stores(self, value: object, type_: Any) -> bool:
        """Whether a value, sent as its own type says, is the key of its row as it is."""
        keys = self._keys
        return (
            type(value) is self.own
            and (type_ is None or type_ is self.declared.columns[0].type)
            and keys is not None
            and keys.replaces_nothing
        )

    def key_to_store(self, values: list[object], types: list[Any]) -> Key | None:
        """The key of the row that these values make; None if it has none. Raises Unclear."""
        keys = self._keys  # once: another thread may forget it
        if keys is None:
            raise Unclear(self.doubt)
        return keys.key_to_store(values, types)

    # Writing -----------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        """Whether an outbox has the written keys, as the filter was built, or is being built."""
        return self.has_outbox and bool((note := self.note()).feed or note.feed_building)

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
                self.with_filter(lambda users: users.add_many(list(keys)))
            else:
                self.fence("written while its filter was replaced")

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
