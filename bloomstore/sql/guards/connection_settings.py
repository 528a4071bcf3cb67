"""Whether a connection has the settings with which guards were compared with its database.

The table that a name without a schema means, the stored form of a value, and the rows that a
transaction sees depend on settings of the connection: search_path, the role, the default database,
sql_mode, temporary tables and triggers, the isolation level. They are read when guards meet the
database, and again before the next answer on a connection where they may have changed:
  1. text was sent that is not known to leave them alone (sql_text.py);
  2. another listener hears of the pool or of the beginning of transactions (foreign_listeners.py)
     and may have set them by a raw cursor. Then they are read once in each transaction.

A comparison holds for one transaction if the text was sent in it, because a rollback brings back
the earlier settings. A comparison in a later transaction holds until the next such text.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.orm import Session

from bloomstore.sql.attached import CHANGED
from bloomstore.sql.databases import database_of, drivers, traits_of
from bloomstore.sql.databases.contract import Place, SettingsRead
from bloomstore.sql.databases.isolation import level_of
from bloomstore.sql.databases.sql_text import Effect
from bloomstore.sql.guards import foreign_listeners

UNSETTLED = "the settings of the connection are not those that guards were compared with"


class Changed:
    """The state of a connection whose settings may have changed."""

    __slots__ = ("__weakref__", "are_same", "compared_in", "dialect", "is_lasting", "is_unseen",
                 "since")  # fmt: skip

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_lasting = False  # beyond the transaction
        self.is_unseen = False  # no query shows what has changed
        self.since: Callable[[], Any] = (
            no_transaction  # the transaction in which it may have changed
        )
        self.compared_in: Callable[[], Any] = no_transaction
        self.are_same = False


class Settings:
    """The settings of the connections of one plugin's engines."""

    def __init__(self) -> None:
        # By dialect: the tables whose names are looked for, and what was found.
        self._known: dict[int, tuple[list[Place], SettingsRead]] = {}
        self._changed: weakref.WeakSet[Changed] = weakref.WeakSet()
        self.have_changed = False  # on some connection, at some time

    def learn(self, dialect: Dialect, raw: Any, places: Iterable[Place]) -> None:
        """Reads them on a connection that guards are compared with; ends its transaction."""
        self._known.pop(id(dialect), None)  # if reading fails, nothing compares equal
        wanted = sorted(set(places), key=str)
        with contextlib.suppress(Exception):  # of any driver
            self._known[id(dialect)] = wanted, _read(dialect, raw, wanted)
        raw.rollback()

    def may_change(self, connection: Connection, effects: Effect) -> None:
        """Text with these effects is sent."""
        try:
            info = connection.info
        except NotImplementedError:
            return  # SQLAlchemy inspects its first connection before lending it
        changed: Changed | None = info.get(CHANGED)
        sets = effects & (Effect.SETS | Effect.SETS_LOCALLY | Effect.SETS_UNSEEN)
        if changed is None:
            if not sets:
                return
            changed = info[CHANGED] = Changed(connection.dialect)
        self.have_changed = True
        changed.compared_in = no_transaction
        if not sets and not effects & (Effect.UNDOES | Effect.COMMITS):
            return
        transaction = connection.get_transaction()
        changed.since = no_transaction if transaction is None else weakref.ref(transaction)
        if effects & (Effect.SETS | Effect.SETS_UNSEEN):
            changed.is_lasting = True
            self._changed.add(changed)
        changed.is_unseen |= bool(effects & Effect.SETS_UNSEEN) and (
            traits_of(connection.dialect).clips_values
        )

    def hold(self, connection: Connection, *, is_meddled: bool = False) -> bool:
        """Whether the connection has the settings that guards were compared with; may ask it.

        `is_meddled`: foreign listeners were told when its transaction began.
        """
        changed: Changed | None = connection.info.get(CHANGED)
        is_meddled = is_meddled or foreign_listeners.may_set(connection)
        if changed is None and not is_meddled:
            return True
        transaction = connection.get_transaction()
        if changed is None:
            changed = connection.info[CHANGED] = Changed(connection.dialect)
        is_later = changed.since() is None or changed.since() is not transaction
        if is_later and not changed.is_lasting and not is_meddled:
            del connection.info[CHANGED]
            return True
        if changed.is_unseen:
            return False
        if transaction is not None and changed.compared_in() is transaction:
            return changed.are_same
        changed.are_same = self._are_same(connection, is_alone=transaction is None)
        if changed.are_same and is_later and not is_meddled:
            del connection.info[CHANGED]
            self._changed.discard(changed)
        elif transaction is not None:
            changed.compared_in = weakref.ref(transaction)
        return changed.are_same

    def are_known(self, session: Session, bind: Connection | Engine) -> bool:
        """Whether names lead where they led when guards were compared, for this session."""
        # Both events come before the first statement of a transaction, and may use its connection.
        heard = session.dispatch
        is_meddled = foreign_listeners.are_foreign(
            heard.after_begin
        ) or foreign_listeners.are_foreign(heard.after_transaction_create)
        if isinstance(bind, Connection):
            return self.hold(bind, is_meddled=is_meddled)
        # The pool may lend any connection, and listeners may change it when it begins.
        return not is_meddled and not self.may_differ(bind)

    def may_differ(self, engine: Engine) -> bool:
        """Whether the settings of the connection that the pool lends next are unknown."""
        return foreign_listeners.may_set_next(engine) or (
            self.have_changed and any(each.dialect is engine.dialect for each in self._changed)
        )

    def have_changed_on(self, engine: Engine) -> bool:
        """Whether text may have changed them on some connection of the pool."""
        return any(each.dialect is engine.dialect for each in self._changed)

    def _are_same(self, connection: Connection, *, is_alone: bool) -> bool:
        places, (_, before) = self._known.get(id(connection.dialect), ([], ("", ())))
        raw: Any = connection.connection.dbapi_connection
        try:
            level, now = _read(connection.dialect, raw, places)
            if is_alone:
                raw.rollback()
        except Exception:  # noqa: BLE001  any driver's; the next statement will raise it
            return False
        expected = level_of(connection)
        if expected == "AUTOCOMMIT":
            expected = level if level in ("READ COMMITTED", "REPEATABLE READ") else expected
        return bool(before) and now == before and level == expected


def may_have_changed(connection: Connection) -> bool:
    """Whether text may have changed the settings since they were last compared."""
    changed: Changed | None = connection.info.get(CHANGED)
    return changed is not None and (
        changed.is_lasting or changed.since() is connection.get_transaction()
    )


def no_transaction() -> None:
    """Stands for a weak reference to a transaction when there is none."""


def _read(dialect: Dialect, raw: Any, places: list[Place]) -> SettingsRead:
    cursor: Any = raw.cursor()
    try:
        level, values = database_of(dialect).read_settings(cursor, places)
    finally:
        cursor.close()
    return level, (*values, drivers.doubt_of(raw, dialect), drivers.reads_text(raw, dialect))
