"""A guard at work: it answers lookups and takes the keys of written rows.

In: values as the application has them. Out: an Answer. A guard answers ABSENT or MAYBE only if its
filter is believed (trust.py), is sound and has no fence; fences are in the catalog, so every
process sees them. Otherwise it answers UNKNOWN, with the reason.
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
from bloomstore.sql.guards.record import Record, change_record
from bloomstore.sql.guards.trust import TrustedFilter

DELETES_NOTED = 1000  # rows: a change of the record is a durable commit
WRITTEN = "this transaction has written rows whose keys are not known"


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

    # Asking ------------------------------------------------------------------------

    def ask(self, value: object, own_writes: OwnWrites | None = None) -> Answer:
        """The answer for a value as the application has it; a tuple for a composite key."""
        answer = self.answer(value, own_writes)
        self.metrics.count(answer)
        return answer

    def answer(self, value: object, own_writes: OwnWrites | None = None) -> Answer:
        """The same, not counted: for a `get` the session counts the outcome instead."""
        try:
            believed = self.believed()
            if believed is None:
                return Answer.unknown(self.doubt)
            return self._answer_of(believed, self.key_of(value), own_writes)
        except (Unclear, BloomStoreError) as why:
            return Answer.unknown(str(why))

    def _answer_of(self, believed: Filter, key: Key, own_writes: OwnWrites | None) -> Answer:
        if own_writes is not None:
            if self in own_writes.unknown:
                return Answer.unknown(WRITTEN)
            if key in own_writes.keys.get(self, ()):
                return Answer.MAYBE
        try:
            if key not in believed:
                return Answer.ABSENT
        except BloomStoreError as error:
            self.reopen()
            return Answer.unknown(str(error))
        return self.answer_of_hit(believed)

    def confirm(
        self, value: object, lacking: Filter | None, own_writes: OwnWrites | None
    ) -> Answer:
        """The answer for a value, after this filter was asked and lacked its key; not counted.

        The filter is asked again only if the guard has another one by now, or doubts it; None
        means that none was asked.
        """
        if lacking is None or self.filter is not lacking or self.doubt:
            return self.answer(value, own_writes)
        if own_writes is None:
            return Answer.ABSENT
        if self in own_writes.unknown:
            return Answer.unknown(WRITTEN)
        try:
            is_written = self.key_of(value) in own_writes.keys.get(self, ())
        except Unclear as why:  # the key was known before: the live table has just changed
            return Answer.unknown(str(why))
        return Answer.MAYBE if is_written else Answer.ABSENT

    def answer_of_hit(self, asked: Filter) -> Answer:
        """The answer when this filter has reported a key: MAYBE if it was sound."""
        try:
            return Answer.MAYBE if asked.was_sound else Answer.unknown(str(asked.state))
        except BloomStoreError as error:
            self.reopen()
            return Answer.unknown(str(error))

    def unknown(self, reason: str) -> Answer:
        """UNKNOWN, counted."""
        answer = Answer.unknown(reason)
        self.metrics.count(answer)
        return answer

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
        """Whether a value that is sent with this type is, unchanged, the key of its row."""
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
        return self.has_outbox and bool((record := self.record()).feed or record.feed_building)

    def add(self, keys: set[Key]) -> None:
        """Adds keys durably; fences the filter instead if it was built with another key form."""
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
            # The database accepted the row, so the transaction must not fail for its key.
            self.fence(f"a key cannot be added: {error}")
        except FilterNotFound:
            self.reopen()
            if self._has_its_form():
                self.with_filter(lambda users: users.add_many(list(keys)))
            else:
                self.fence("written while its filter was replaced")

    def count_deleted(self, count: int) -> None:
        """Counts deleted rows, whose keys stay in the filter; now and then updates the record."""
        self.metrics.deleted += count
        if self.metrics.deleted >= DELETES_NOTED:
            self.note_deleted()

    def note_deleted(self) -> None:
        """Adds this process's count of deleted rows to the record, which outlives the process."""
        count, self.metrics.deleted = self.metrics.deleted, 0

        def add(record: Record) -> None:
            record.deleted += count

        if count:  # a build in another process may write the record at the same time
            change_record(self.store, self.name, add)
