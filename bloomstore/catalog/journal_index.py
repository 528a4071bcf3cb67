"""Which journal rows name which segment, so that the journal is scanned once for all segments.

In: views of the catalog, out: sequences. Between checkpoints the journal only grows, at its end: of
a newer view only the rows after the last known one are read. A deleted row shows in the number of
rows, and then all of them are read again. Only sequences are remembered here; the rows themselves
are read from the view of the caller.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bloomstore.catalog.view import CatalogView


class JournalIndex:
    """The rows of one catalog as its newest reader has seen them. Safe in several threads."""

    def __init__(self) -> None:
        self._updating = threading.RLock()  # a signal handler may come in the middle, and ask too
        self._transaction = -1
        self._last = 0
        self._rows = 0
        self._by_segment: dict[int, list[int]] = {}

    def sequences(self, view: CatalogView, number: int) -> list[int]:
        """The sequences of a segment's rows in this view, in order."""
        with self._updating:
            if view.transaction < self._transaction:  # it is older than what is known
                return [row.sequence for row in view.journal() if row.number == number]
            if view.transaction > self._transaction:
                self._update(view)
            return list(self._by_segment.get(number, ()))

    def _update(self, view: CatalogView) -> None:
        expected = view.journal_rows()
        if self._transaction < 0:  # the last update was interrupted
            self._by_segment, self._last, self._rows = {}, 0, 0
        self._transaction = -1  # until the update is done
        if not self._take(view, expected):
            self._by_segment, self._last, self._rows = {}, 0, 0
            self._take(view, expected)
        self._transaction = view.transaction

    def _take(self, view: CatalogView, expected: int) -> bool:
        """Takes the rows that are new; False if some that were known are gone."""
        if self._rows > expected:
            return False
        for row in view.journal(after=self._last):
            self._by_segment.setdefault(row.number, []).append(row.sequence)
            self._last = row.sequence
            self._rows += 1
        return self._rows == expected
