"""The blocks of a catalog: one transaction of LMDB each, inside the gate.

    read      a view of this moment
    write     a change that is committed when its block ends, and undone when it raises
    attempt   a change that is undone, unless it was committed inside
    settled   a view in a change that is undone

Each is a Holding: no exception leaves a transaction open, or the gate entered. They are not
generators: a generator that is interrupted in its end lives on in the traceback, and would finish
only when that is dropped; and a block of contextlib takes 5 us.

Not here: reading and writing rows (view.py, change.py), when to do so (store).
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

import lmdb

from bloomstore.catalog.change import CatalogChange
from bloomstore.catalog.view import CatalogView
from bloomstore.errors import StoreFailed
from bloomstore.held import Holding

if TYPE_CHECKING:
    from bloomstore.catalog.catalog import Catalog

_NO_CHANGES = "the catalog takes no changes"


class Transaction(Holding):
    """A transaction of one thread, which stays inside the gate until it ends."""

    __slots__ = ("_before", "_catalog", "_gate", "_lmdb", "_me")
    writes = False
    fails = "reading the catalog failed"

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._gate = catalog.gate
        self._me = threading.get_ident()
        self._before = catalog.gate.times(self._me)
        self._lmdb: Any = None

    def begin(self) -> Any:
        """Enters the gate and begins; once more if Catalog.mend helped. Raises StoreFailed."""
        self.announce()
        try:
            if self._catalog.is_spent:
                self._catalog.renew()
            try:
                return self._begin()
            except lmdb.Error as error:
                self._gate.leave(self._me, self._before)
                if not self._catalog.mend(error):
                    raise
            return self._begin()
        except lmdb.Error as error:
            self.end()
            what = _NO_CHANGES if self.writes else self.fails
            raise StoreFailed(f"{self._catalog.path}: {what}: {error}") from error
        except BaseException:
            self.end()
            raise

    def _begin(self) -> Any:
        self._gate.enter(self._me, self._before)
        self._lmdb = self._catalog.begin(write=self.writes)
        return self._lmdb

    def give_back(self, *, is_done: bool) -> None:
        """Undoes what was not committed, and leaves the gate."""
        if self._lmdb is not None:
            try:
                self._lmdb.abort()
            except lmdb.Error:  # the transaction is over: committed, or its environment closed
                self._lmdb = None
        self._gate.leave(self._me, self._before)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        if isinstance(error, lmdb.Error):
            raise StoreFailed(f"{self._catalog.path}: {self.fails}: {error}") from error


class Reading(Transaction):
    """The block of Catalog.read."""

    __slots__ = ()

    def __enter__(self) -> CatalogView:
        return CatalogView(self.begin(), *self._catalog.known, self._catalog.index)


class Settled(Transaction):
    """The block of Catalog.settled."""

    __slots__ = ()
    writes = True
    fails = _NO_CHANGES

    def __enter__(self) -> CatalogView:
        return CatalogView(self.begin(), *self._catalog.known)


class Attempt(Transaction):
    """The block of Catalog.attempt."""

    __slots__ = ("_change",)
    writes = True
    fails = "committing failed"

    def __enter__(self) -> CatalogChange:
        self._change = CatalogChange(self.begin(), *self._catalog.known)
        return self._change

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._change.is_committed:
            self._lmdb = None  # there is nothing to undo
        super().__exit__(kind, error, traceback)


class Writing(Attempt):
    """The block of Catalog.write."""

    __slots__ = ()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                self._change.commit()
                self._catalog.witness.raise_to(self._catalog.last_number())
            except lmdb.Error as failed:
                kind, error = type(failed), failed
        if isinstance(error, lmdb.Error):
            self._catalog.is_spent = True  # a new environment shows whether it was committed
        super().__exit__(kind, error, traceback)
