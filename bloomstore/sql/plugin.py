"""The plugin: guards of a store in front of the tables of a database.

    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine, Session)          # from here on every write is captured
    plugin.build(engine)                    # until then every answer is UNKNOWN
    plugin.probe(User.email, "a@b.c")       # Answer.ABSENT | MAYBE | UNKNOWN

Every process that writes to a guarded table must listen, on the host that has the store: a filter
in mapped files sees no writer on another host, unless an outbox feeds it (feed.py).

Not here: how writes are seen (capture.py), how sessions are answered (session.py), how a guard is
built (build.py).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from sqlalchemy import MetaData, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.util import greenlet_spawn

from bloomstore import Store
from bloomstore.errors import BloomStoreError, SpecError
from bloomstore.rebuild import Rebuilt, rebuild
from bloomstore.spec.families import FilterSpec
from bloomstore.sql.active import ActiveGuard
from bloomstore.sql.answer import Answer
from bloomstore.sql.asker import BYPASS, PLUGIN, SENT, Asker
from bloomstore.sql.build import BuildError, Built, build_guard
from bloomstore.sql.builder import only_builder
from bloomstore.sql.capture import Capture
from bloomstore.sql.databases import BY_DIALECT
from bloomstore.sql.feed import Feed
from bloomstore.sql.flight import Flight
from bloomstore.sql.guarded import GuardSource
from bloomstore.sql.guards import Guards
from bloomstore.sql.incarnation import ensure_incarnation
from bloomstore.sql.many import may_be_present, those_left_out
from bloomstore.sql.session import GuardedSession
from bloomstore.sql.standing import STANDING, shares_connections
from bloomstore.sql.stats import stats_of

log = logging.getLogger("bloomstore.sql")

Policy = Literal["explicit", "auto", "shadow"]
POLICIES = ("explicit", "auto", "shadow")
CONNECTING = "bloomstore/connecting"  # in connection.info
PATIENCE = 60.0  # seconds that a build waits for transactions that were open before it


class BloomPlugin:
    """The guards that are declared in a MetaData, kept in a store.

    Policy "explicit" answers where Guarded() or GuardedSession asks, "auto" every ORM SELECT it
    can, "shadow" sends every query all the same and compares.
    """

    def __init__(
        self, store: Store, metadata: MetaData | None = None, policy: Policy = "explicit"
    ) -> None:
        if policy not in POLICIES:
            raise SpecError(f"policy is one of {', '.join(POLICIES)}, got {policy!r}")
        _expect(store, Store, "the store that bloomstore.open() returns")
        _expect(metadata, MetaData | None, "a MetaData, as in Base.metadata")
        self.store = store
        self.policy: Policy = policy
        self._engines: list[Engine] = []
        self._undo: list[Callable[[], None]] = []
        self._flight = Flight(store.path)
        self._guards = Guards(store, metadata)
        self._capture = Capture(self._guards, self._flight)
        self._asker = Asker(policy, self._guards, self._capture, self._listens_to)
        self._guards.when_new = [self._capture.forget_plans, self._asker.forget_plans]

    @property
    def guards(self) -> dict[str, ActiveGuard]:
        """Every guard by its name."""
        return {guard.name: guard for guard in self._guards}

    def declare(self, metadata: MetaData) -> None:
        """Adds the guards of these tables, as if they had been given at the beginning.

        For the plugin of a URL, which finds guards on the tables of statements that it sees, and
        until then cannot answer for them, nor know their keys.
        """
        _expect(metadata, MetaData, "a MetaData, as in Base.metadata")
        self._guards.declare(metadata)
        self._capture.forget_plans()
        self._asker.forget_plans()
        for engine in self._engines:
            if not engine.dialect.is_async:
                self._look_at(engine)

    # Listening ---------------------------------------------------------------------

    def listen(self, *targets: Any) -> None:
        """Engines, sync or async, whose writes are captured; session factories that may ask."""
        for target in targets:
            if isinstance(target, (Engine, AsyncEngine)):
                self._listen_to_engine(target)
            else:
                self._listen_to_sessions(target)

    def unlisten(self) -> None:
        """Takes every listener away; nothing of the plugin is left behind.

        Guards answer UNKNOWN from now on. What is written before somebody listens again is not
        seen: then `build(engine, force=True)` reads it.
        """
        self._asker.listening = None
        for undo in reversed(self._undo):
            undo()
        with contextlib.suppress(BloomStoreError):  # counts for people; the store may be closed
            for guard in self._guards:
                guard.note_deleted()
                if guard.feed is not None:
                    guard.feed.note_position()
        for guard in self._guards:
            guard.forget_database()
        self._undo.clear()
        self._engines.clear()

    def _listen_to_engine(self, target: Engine | AsyncEngine) -> None:
        engine = target.sync_engine if isinstance(target, AsyncEngine) else target
        if engine.dialect.name not in BY_DIALECT:
            raise SpecError(
                f"no guard knows how {engine.dialect.name} compares: {', '.join(BY_DIALECT)}"
            )

        def connected(raw: Any, record: Any) -> None:
            self._guards.meet(engine.dialect, raw)
            if [*engine.pool.dispatch.connect][-1] is not connected:
                record.info[CONNECTING] = True  # others may still change its settings
                if not event.contains(engine, "checkout", lent):
                    self._listen(engine, "checkout", lent)

        def lent(raw: Any, record: Any, _: Any) -> None:
            if record.info.pop(CONNECTING, False):
                self._guards.meet(engine.dialect, raw)

        listeners: list[tuple[str, Callable[..., Any]]] = [("connect", connected)]
        if self.policy == "auto":
            names = ("do_execute", "do_executemany", "do_execute_no_params")
            listeners += [(name, lambda *rest: _note_sent(rest[-1])) for name in names]
        self._capture.listen(engine)
        self._undo.append(lambda: self._capture.unlisten(engine))
        for name, listener in listeners:
            self._listen(engine, name, listener)
        self._engines.append(engine)
        self._asker.listening = self._asker.listening or object()
        if target is engine:
            self._look_at(engine)

    def _look_at(self, engine: Engine) -> None:
        """Lets guards see their database before anybody needs a connection."""
        try:
            with engine.connect() as connection:
                self._guards.meet(engine.dialect, connection.connection.dbapi_connection)
        except SQLAlchemyError as error:
            log.warning("guards have not seen their database yet: %s", error)

    def _listens_to(self, bind: Any) -> bool:
        """Whether an engine or connection is one of ours; engines with options share a dialect."""
        if isinstance(bind, Engine) and id(bind.dialect) in self._capture.changed:
            return False  # nobody knows which of its connections would be asked
        return any(bind.dialect is engine.dialect for engine in self._engines)

    def _listen_to_sessions(self, target: Any) -> None:
        if isinstance(target, async_sessionmaker):
            self._tell(target)
            target = self._own_session_class(target)
        elif isinstance(target, sessionmaker):
            self._tell(target)
        elif isinstance(target, Session):
            target.info[PLUGIN] = self._asker
            self._undo.append(lambda: target.info.pop(PLUGIN, None))
        else:
            raise SpecError(f"listen to an engine, a session factory or a session, got {target!r}")
        names = ["after_begin", "after_transaction_end"]
        made = target.class_ if isinstance(target, sessionmaker) else target
        kind = made if isinstance(made, type) else type(made)
        if issubclass(kind, ShardedSession):
            raise SpecError(f"{kind.__name__} asks several databases: a plugin serves one")
        is_own = issubclass(kind, GuardedSession)
        if not is_own or self.policy != "explicit":
            names.append("do_orm_execute")
        for name in names:
            self._listen(target, name, getattr(self._asker, name))

    def _own_session_class(self, factory: async_sessionmaker[Any]) -> type[Session]:
        """A class of its own below the factory's async sessions: events of others stay apart."""
        before = factory.kw.get("sync_session_class")
        own = type("GuardedSync", (before or Session,), {})
        factory.configure(sync_session_class=own)

        def undo() -> None:
            factory.kw["sync_session_class"] = before
            if before is None:
                del factory.kw["sync_session_class"]

        self._undo.append(undo)
        return own

    def _tell(self, factory: Any) -> None:
        """Sessions of this factory know whom to ask."""
        before = factory.kw.get("info")
        factory.configure(info={**(before or {}), PLUGIN: self._asker})

        def undo() -> None:
            factory.kw["info"] = {
                name: value for name, value in factory.kw["info"].items() if name != PLUGIN
            }
            if before is None:
                del factory.kw["info"]

        self._undo.append(undo)

    def _listen(self, target: Any, name: str, listener: Callable[..., Any]) -> None:
        event.listen(target, name, listener)
        self._undo.append(lambda: event.remove(target, name, listener))

    # Asking ------------------------------------------------------------------------

    def probe(self, column: Any, value: Any, *, connection: Connection | None = None) -> Answer:
        """Whether a committed row may have this value; several columns are a tuple of each.

        With `connection`, what its own transaction has written counts too; a guard with an outbox
        needs one.
        """
        guard = self._guards.of_columns(column)
        _expect(connection, Connection | None, "a Connection, as in session.connection()")
        if guard.feed is not None and (why := self._why_behind(guard.feed, connection)):
            return guard.unknown(why)
        pending = None if connection is None else self._capture.pending(connection)
        return guard.ask(value, pending)

    def partition(
        self, column: Any, values: Iterable[Any], *, connection: Connection | None = None
    ) -> tuple[list[Any], list[Any]]:
        """(values that are certainly absent, values to ask the database for), in their order."""
        values = list(values)
        guard = self._guards.of_columns(column)
        _expect(connection, Connection | None, "a Connection, as in session.connection()")
        if guard.feed is not None and self._why_behind(guard.feed, connection):
            return [], values
        pending = None if connection is None else self._capture.pending(connection)
        ask = may_be_present(guard, values, pending)
        return those_left_out(values, ask), ask

    def _why_behind(self, feed: Feed, connection: Connection | None) -> str:
        """Why a guard with an outbox cannot answer on this connection; "" if it can."""
        if connection is not None and not self._listens_to(connection):
            return "asked on a connection that the plugin does not listen to"
        return feed.catch_up(connection)

    @contextlib.contextmanager
    def bypass(self, session: Session) -> Iterator[None]:
        """Inside, no guard answers for this session."""
        session = getattr(session, "sync_session", session)
        _expect(session, Session, "a session")
        before = session.info.get(BYPASS)
        session.info[BYPASS] = True
        if (standing := session.info.get(STANDING)) is not None:
            standing.guards.clear()
        try:
            yield
        finally:
            if before is None:
                session.info.pop(BYPASS, None)

    def stats(self) -> dict[str, dict[str, Any]]:
        """By guard: what it answered in this process, and how stale and how full its filter is."""
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
        """Makes every guard valid that is not, or those of these columns, while writers go on.

        With `force` also those that are: when rows were written that nobody could see. Waits up to
        `patience` seconds for transactions that are open. `progress` is called with the guard's
        name and the rows that were read. Keys of deleted rows stay: `rebuild` sheds them.

        Raises BuildError when one of them cannot be built; the others are built all the same.
        """
        return self._build(engine, columns, patience, force, progress)

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
            self._build, engine.sync_engine, columns, patience, force, progress
        )
        return built

    def _build(
        self,
        engine: Engine,
        columns: tuple[Any, ...],
        patience: float,
        force: bool,
        progress: Callable[[str, int], None] | None,
    ) -> list[Built]:
        built, failed = [], []
        with only_builder(self.store.path):
            for guard in self._looked_at_again(engine, columns):
                if not guard.why_unknown() and not force:
                    continue
                try:
                    built.append(
                        build_guard(
                            guard,
                            engine,
                            self._flight,
                            patience=patience,
                            progress=_of_guard(guard, progress),
                        )
                    )
                except BuildError as error:
                    failed.append(error)
        if failed:
            raise failed[0] if len(failed) == 1 else BuildError("; ".join(map(str, failed)))
        return built

    def _looked_at_again(self, engine: Engine, columns: tuple[Any, ...]) -> list[ActiveGuard]:
        """The guards of these columns, or all, which have seen the database as it is now."""
        _expect(engine, Engine, "an engine; `build_async` is for async ones")
        if engine not in self._engines:
            raise SpecError("listen to the engine before you build: its writers must be seen")
        # A connection that is shared may be all that there is of a database.
        if id(engine.dialect) in self._capture.changed and not shares_connections(engine):
            engine.dispose()  # connections whose settings were changed do not come back
            self._capture.changed.discard(id(engine.dialect))
        ensure_incarnation(engine)
        for each in self._engines:
            if each.dialect.is_async is engine.dialect.is_async:
                with each.connect() as connection:
                    self._guards.meet(each.dialect, connection.connection.dbapi_connection)
        return [self._guards.of_columns(column) for column in columns] or list(self._guards)

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
        """Fills the filters of these columns' guards, or of all, anew while everybody goes on.

        They get one stage for the rows there are, or become what `spec` says, and lose the keys of
        deleted rows. A rebuild that was cut off goes on, unless `restart`. `parallel` connections
        read ranges of an integer column. See bloomstore.rebuild.
        """
        _expect(engine, Engine, "an engine; `rebuild_async` is for async ones")
        if engine.dialect.is_async:
            raise SpecError("expected a sync engine; `rebuild_async` is for async ones")
        return self._rebuild(engine, columns, spec, patience, restart, parallel, progress)

    async def rebuild_async(
        self,
        engine: AsyncEngine,
        *columns: Any,
        spec: FilterSpec | None = None,
        patience: float = PATIENCE,
        restart: bool = False,
        progress: Callable[[str, int], None] | None = None,
    ) -> list[Rebuilt]:
        """`rebuild` for an async engine: others have their turn whenever it waits for rows."""
        _expect(engine, AsyncEngine, "an async engine; `rebuild` is for others")
        done: list[Rebuilt] = await greenlet_spawn(
            self._rebuild, engine.sync_engine, columns, spec, patience, restart, 1, progress
        )
        return done

    def _rebuild(
        self,
        engine: Engine,
        columns: tuple[Any, ...],
        spec: FilterSpec | None,
        patience: float,
        restart: bool,
        parallel: int,
        progress: Callable[[str, int], None] | None,
    ) -> list[Rebuilt]:
        done = []
        for guard in self._looked_at_again(engine, columns):
            guard.metrics.deleted = 0  # what was deleted by now will not be read
            done.append(
                rebuild(
                    self.store,
                    guard.name,
                    GuardSource(self.store, engine, guard.declared, parallel=parallel),
                    spec=spec,
                    target_error=None if spec else guard.declared.guard.spec.target_error,
                    restart=restart,
                    patience=patience,
                    progress=_of_guard(guard, progress),
                )
            )
        return done


def _expect(given: object, kind: Any, what: str) -> None:
    if not isinstance(given, kind):
        raise SpecError(f"expected {what}, got {given!r}")


def _of_guard(
    guard: ActiveGuard, progress: Callable[[str, int], None] | None
) -> Callable[[int], None]:
    """What is told how many rows of this guard were read."""
    return lambda rows: None if progress is None else progress(guard.name, rows)


def _note_sent(context: Any) -> None:
    context.root_connection.info[SENT] = True
