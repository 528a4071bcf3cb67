"""Builds and rebuilds of a plugin's guards on an engine that the plugin listens to.

In: an engine and perhaps columns. Each guard first meets its database as it is now. A build goes
through all guards and reports every failure at the end; a rebuild stops at the first.

Not here: the steps for one guard (build.py, guard_source.py, ceremony.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Engine

from bloomstore import Store
from bloomstore.errors import BuildError, SpecError
from bloomstore.families.contract import FilterSpec
from bloomstore.rebuild import Rebuilt, rebuild
from bloomstore.sql.ask.listened_engines import ListenedEngines
from bloomstore.sql.build.build import Built, build_guard
from bloomstore.sql.build.build_lock import only_builder
from bloomstore.sql.build.guard_source import GuardSource
from bloomstore.sql.guards.guard import ActiveGuard
from bloomstore.sql.guards.guard_set import Guards

Progress = Callable[[str, int], None]  # is told the name of a guard and the rows read so far


class GuardBuilds:
    """The builds and rebuilds of one plugin."""

    def __init__(self, store: Store, guards: Guards, engines: ListenedEngines) -> None:
        self._store = store
        self._guards = guards
        self._engines = engines

    def build(
        self,
        engine: Engine,
        columns: tuple[Any, ...],
        patience: float,
        force: bool,
        progress: Progress | None,
    ) -> list[Built]:
        """Builds guards that are not valid, with `force` all of them. Raises BuildError."""
        built, errors = [], []
        with only_builder(self._store.path):
            for guard in self._guards_of(engine, columns):
                if not force and not guard.why_unknown():
                    continue
                try:
                    told = _rows_of(guard, progress)
                    built.append(build_guard(guard, engine, patience=patience, progress=told))
                except BuildError as error:
                    errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else BuildError("; ".join(map(str, errors)))
        return built

    def rebuild(
        self,
        engine: Engine,
        columns: tuple[Any, ...],
        spec: FilterSpec | None,
        patience: float,
        restart: bool,
        parallel: int,
        progress: Progress | None,
    ) -> list[Rebuilt]:
        """Rebuilds the filters of guards."""
        rebuilt = []
        for guard in self._guards_of(engine, columns):
            guard.metrics.deleted = 0  # the rebuild will not read rows that are deleted already
            source = GuardSource(
                self._store, engine, guard.declared, parallel=parallel, live=guard.seen_by(engine)
            )
            rebuilt.append(
                rebuild(
                    self._store,
                    guard.name,
                    source,
                    spec=spec,
                    target_error=None if spec else guard.declared.guard.spec.target_error,
                    restart=restart,
                    patience=patience,
                    progress=_rows_of(guard, progress),
                )
            )
        return rebuilt

    def _guards_of(self, engine: Engine, columns: tuple[Any, ...]) -> list[ActiveGuard]:
        """The guards of these columns, or all, which have met the database as it is now."""
        if engine not in self._engines:
            raise SpecError(
                "listen to the engine before you build: the plugin must see its writers"
            )
        self._engines.meet_again(engine)
        return [self._guards.of_columns(column) for column in columns] or list(self._guards)


def _rows_of(guard: ActiveGuard, progress: Progress | None) -> Callable[[int], None]:
    """Adapts `progress(name, rows)` to `progress(rows)` for one guard."""
    return lambda rows: None if progress is None else progress(guard.name, rows)
