"""The plugin: guards of a store in front of the tables of a database.

    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, Session)          # from here on every write is captured
    plugin.build(engine)                    # until then every answer is UNKNOWN
    plugin.probe(User.email, "a@b.c")       # Answer.ABSENT | MAYBE | UNKNOWN

Every process that writes to a guarded table must listen, on the host that has the store: a filter
in mapped files sees no writer on another host, unless an outbox feeds it (outbox/).

This file wires the rooms together and checks arguments. Not here: how writes become keys
(capture/), how lookups are answered (ask/), how a guard becomes valid (build/).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from sqlalchemy import MetaData
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from bloomstore import Store
from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.rebuild import Rebuilt
from bloomstore.sql.answer import Answer
from bloomstore.sql.ask.asker import Asker
from bloomstore.sql.ask.compared_database import Comparisons
from bloomstore.sql.ask.listened_engines import ListenedEngines
from bloomstore.sql.ask.probes import Probes
from bloomstore.sql.ask.session_factories import listen_to_sessions
from bloomstore.sql.ask.session_facts import bypassed
from bloomstore.sql.build.build import Built
from bloomstore.sql.build.guard_builds import GuardBuilds
from bloomstore.sql.capture.autocommit_lock import AutocommitLock
from bloomstore.sql.capture.capture import Capture
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.guard_set import Guards
from bloomstore.sql.guards.stats import stats_of
from bloomstore.sql.listeners import Listeners
from bloomstore.sql.outbox.catch_up import Feed

Policy = Literal["explicit", "auto", "shadow"]
POLICIES = ("explicit", "auto", "shadow")
PATIENCE = 60.0  # seconds that a build waits for transactions that were open before it


class BloomPlugin:
    """The guards that a MetaData declares, with their filters in a store.

    Policy "explicit" answers where Guarded() or GuardedSession asks, "auto" answers every ORM
    SELECT it can, "shadow" sends every query anyway and compares. The identity of the
    database is compared on new connections, and before an answer if the last comparison is
    `identity_check` seconds old; 0 compares in every transaction.
    """

    def __init__(
        self,
        store: Store,
        metadata: MetaData | None = None,
        policy: Policy = "explicit",
        *,
        identity_check: float = 2.0,
    ) -> None:
        if policy not in POLICIES:
            raise SpecError(f"policy is one of {', '.join(POLICIES)}, got {policy!r}")
        if not isinstance(identity_check, (int, float)) or not identity_check >= 0:
            raise SpecError(f"identity_check is seconds from 0 on, got {identity_check!r}")
        _expect(store, Store, "the store that bloomstore.open() returns")
        _expect(metadata, MetaData | None, "a MetaData, as in Base.metadata")
        self.store = store
        self.policy: Policy = policy
        self._asking: list[Any] = []  # sessions and their factories
        self._listeners = Listeners()
        self._guards = Guards(store, metadata, Feed)
        self._capture = Capture(self._guards, AutocommitLock(store.path))
        comparisons = Comparisons(self._guards, identity_check)
        self._asker = Asker(policy, self._guards, self._capture, comparisons)
        self._engines = ListenedEngines(
            self._guards, self._capture, self._asker.eligibility, self._listeners
        )
        self._builds = GuardBuilds(store, self._guards, self._engines)
        self._probes = Probes(self._guards, self._asker.eligibility, self._engines)
        self._guards.when_new = [self._capture.plans.forget, self._asker.forget_plans]

    @property
    def guards(self) -> dict[str, ActiveGuard]:
        """Every guard by its name."""
        return {guard.name: guard for guard in self._guards}

    def declare(self, metadata: MetaData) -> None:
        """Adds the guards of these tables, as if they had been given at the beginning.

        For the plugin of a URL, which finds guards on the tables of the statements that it sees:
        before the first statement on a table it can neither answer for it nor know its keys.
        """
        _expect(metadata, MetaData, "a MetaData, as in Base.metadata")
        self._guards.declare(metadata)
        self._capture.plans.forget()
        self._asker.forget_plans()
        self._engines.look_at_all()

    # Listening ---------------------------------------------------------------------

    def listen(self, *targets: Any) -> None:
        """Captures the writes of engines, sync or async, and answers session factories.

        No connection is opened. A target that is listened to already is left as it is.
        """
        for target in targets:
            if isinstance(target, (Engine, AsyncEngine)):
                self._engines.add(target)
            else:
                with self._listeners.lock:
                    if not any(target is other for other in self._asking):
                        listen_to_sessions(target, self._asker, self._listeners)
                        self._asking.append(target)

    def unlisten(self) -> None:
        """Removes every listener; nothing of the plugin is left behind.

        Guards answer UNKNOWN from now on. Rows that are written before the plugin listens again go
        unseen: `build(engine, force=True)` reads them then. Transactions that other threads have
        open have their keys added when this returns.
        """
        with self._listeners.lock:
            self._asker.eligibility.listens(is_on=False)
            self._listeners.undo()
            self._asking.clear()
            self._engines.clear()
        self._guards.forget_databases()

    # Asking ------------------------------------------------------------------------

    def probe(self, column: Any, value: Any, *, connection: Connection | None = None) -> Answer:
        """Whether a committed row may have this value; several columns take a tuple of values.

        With `connection`, rows that its own transaction has written count too; a guard with an
        outbox needs one.
        """
        _expect(connection, Connection | None, "a Connection, as in session.connection()")
        return self._probes.probe(column, value, connection)

    def partition(
        self, column: Any, values: Iterable[Any], *, connection: Connection | None = None
    ) -> tuple[list[Any], list[Any]]:
        """(values that are certainly absent, values to ask the database for), in their order."""
        _expect(connection, Connection | None, "a Connection, as in session.connection()")
        return self._probes.partition(column, list(values), connection)

    @contextlib.contextmanager
    def bypass(self, session: Session) -> Iterator[None]:
        """Inside, no guard answers for this session."""
        session = getattr(session, "sync_session", session)
        _expect(session, Session, "a session")
        with bypassed(session):
            yield

    def stats(self) -> dict[str, dict[str, Any]]:
        """By guard, its answers in this process, and how stale and how full its filter is."""
        return {guard.name: stats_of(guard) for guard in self._guards}

    # Building ----------------------------------------------------------------------

    def build(
        self,
        engine: Engine,
        *columns: Any,
        patience: float = PATIENCE,
        force: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> list[Built]:
        """Makes guards valid, all that are not or those of these columns, while writers continue.

        `force` also builds valid guards: for rows that were written unseen. Waits up to `patience`
        seconds for open transactions to end. `progress` is called with the guard's name and the
        number of rows read. Keys of deleted rows stay: `rebuild` drops them.

        Raises BuildError if a guard cannot be built, after all others were built.
        """
        _expect(engine, Engine, "an engine; `build_async` is for async ones")
        return self._builds.build(engine, columns, patience, force, progress)

    async def build_async(
        self,
        engine: AsyncEngine,
        *columns: Any,
        patience: float = PATIENCE,
        force: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> list[Built]:
        """`build` for an async engine."""
        _expect(engine, AsyncEngine, "an async engine; `build` is for others")
        built: list[Built] = await greenlet_spawn(
            self._builds.build, engine.sync_engine, columns, patience, force, progress
        )
        return built

    def rebuild(
        self,
        engine: Engine,
        *columns: Any,
        spec: FilterSpec | None = None,
        patience: float = PATIENCE,
        restart: bool = False,
        parallel: int = 1,
        progress: Callable[[str, int], None] | None = None,
    ) -> list[Rebuilt]:
        """Rebuilds the filters of these columns' guards, or of all, while the application runs.

        A filter gets one stage for the rows there are, or becomes what `spec` says, and loses the
        keys of deleted rows. An interrupted rebuild is resumed, unless `restart`. `parallel`
        connections read ranges of an integer column. See bloomstore.rebuild.
        """
        _expect(engine, Engine, "an engine; `rebuild_async` is for async ones")
        if engine.dialect.is_async:
            raise SpecError("expected a sync engine; `rebuild_async` is for async ones")
        return self._builds.rebuild(engine, columns, spec, patience, restart, parallel, progress)

    async def rebuild_async(
        self,
        engine: AsyncEngine,
        *columns: Any,
        spec: FilterSpec | None = None,
        patience: float = PATIENCE,
        restart: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> list[Rebuilt]:
        """`rebuild` for an async engine: other tasks run whenever it waits for rows."""
        _expect(engine, AsyncEngine, "an async engine; `rebuild` is for others")
        rebuilt: list[Rebuilt] = await greenlet_spawn(
            self._builds.rebuild, engine.sync_engine, columns, spec, patience, restart, 1, progress
        )
        return rebuilt


def _expect(given: object, kind: Any, what: str) -> None:
    if not isinstance(given, kind):
        raise SpecError(f"expected {what}, got {given!r}")
