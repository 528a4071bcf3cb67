"""The declaration of a guard: which column or columns, and how good the filter must be.

    email: Mapped[str] = mapped_column(info={"bloomstore": Guard(target_error=1e-3)})

    class Member(Base):
        __bloomstore__ = Guard("team_id", "email")          # one key of two columns

Core tables use Column(info=...) and Table(info=...). Nothing here touches a database; guard.py has
the guard that works by a declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Column, MetaData, Table, TypeDecorator

from bloomstore import Durability, Scalable
from bloomstore.errors import SpecError
from bloomstore.sql.sqlalchemy_private import has_bind_expression, mappers_of

INFO = "bloomstore"


class Guard:
    """A declaration of the filter in front of a column. Composite keys name their columns.

    `deterministic` says of a TypeDecorator that equal values are always sent as equal ones.
    `ignore_triggers` says that no trigger changes the guarded columns, and that no program
    writes through a view.
    `feed="outbox"` is for writers that no plugin sees: triggers write their keys to an outbox, see
    `create_guard_outbox`. PostgreSQL is exact, and is asked in a transaction. Elsewhere a follower
    must run, and answers are as old as its last pass: at most `staleness` seconds.
    """

    def __init__(
        self,
        *columns: str,
        target_error: float = 1e-3,
        initial_capacity: int = 10_000,
        durability: Durability | None = None,
        name: str | None = None,
        deterministic: bool = False,
        ignore_triggers: bool = False,
        feed: Literal["capture", "outbox"] = "capture",
        staleness: float | None = None,
    ) -> None:
        if feed not in ("capture", "outbox"):
            raise SpecError(f"feed is 'capture' or 'outbox', got {feed!r}")
        if staleness is not None and (feed != "outbox" or staleness <= 0):
            raise SpecError(
                f"staleness is a number of seconds above 0, with feed='outbox', got {staleness!r}"
            )
        for column in columns:
            if not isinstance(column, str) or columns.count(column) > 1:
                raise SpecError(f"columns are named once each, got {columns!r}")
        if durability not in (None, "commit", "process"):
            raise SpecError(f"durability is 'commit' or 'process', got {durability!r}")
        if name is not None and (not isinstance(name, str) or not name):
            raise SpecError(f"the name of a guard is a text, got {name!r}")
        self.columns = columns
        # A key is one line of memory. In slices it is one line per hash, and a list of 10 000 keys
        # takes half as long again. The price is 14 % more bits per stage, 21 per key at 0.1 %.
        self.spec = Scalable(
            target_error=target_error, initial_capacity=initial_capacity, layout="blocked"
        )
        self.durability = durability
        self.name = name
        self.deterministic = deterministic
        self.ignore_triggers = ignore_triggers
        self.feed = feed
        self.staleness = staleness

    def __repr__(self) -> str:
        columns = "".join(f"{name!r}, " for name in self.columns)
        return f"Guard({columns}target_error={self.spec.target_error:g})"


@dataclass(frozen=True, eq=False)
class Declared:
    """A guard and the columns it was declared for."""

    guard: Guard
    table: Table
    columns: tuple[Column[object], ...]

    @property
    def name(self) -> str:
        """The name of the filter: users.email, or members(team_id, email)."""
        if self.guard.name is not None:
            return self.guard.name
        names = [column.name for column in self.columns]
        return name_of(self.table.name, names, self.table.schema)


def name_of(table: str, columns: Sequence[str], schema: str | None) -> str:
    """The name of a guard that is declared without one."""
    full = table if schema is None else f"{schema}.{table}"
    return f"{full}.{columns[0]}" if len(columns) == 1 else f"{full}({', '.join(columns)})"


def declared_in(metadata: MetaData) -> Iterator[Declared]:
    """Every guard of these tables and of the classes that are mapped to them."""
    for table in metadata.tables.values():
        yield from declared_on(table)


def declared_on(table: Table) -> Iterator[Declared]:
    """The guards of one table. Raises SpecError for one that can never be right."""
    for column in table.columns:
        guard = column.info.get(INFO)
        if guard is not None:
            _check(guard, f"{table.fullname}.{column.name}")
            if guard.columns not in ((), (column.key,)):
                raise SpecError(
                    f"{guard!r} is declared on {table.fullname}.{column.name} and names others:"
                    " declare it in __bloomstore__"
                )
            yield _declare(guard, table, (column,))
    for guard in [*_several(table.info.get(INFO)), *_of_classes(table)]:
        _check(guard, table.fullname)
        missing = [key for key in guard.columns if key not in table.columns]
        if missing or not guard.columns:
            raise SpecError(
                f"{guard!r} on table {table.fullname}: no column {missing or 'is named'}"
            )
        yield _declare(guard, table, tuple(table.columns[key] for key in guard.columns))


def _declare(guard: Guard, table: Table, columns: tuple[Column[object], ...]) -> Declared:
    for column in columns:
        where = f"{table.fullname}.{column.name}"
        if isinstance(column.type, TypeDecorator) and not guard.deterministic:
            raise SpecError(
                f"{where} is a {type(column.type).__name__}: it needs Guard(deterministic=True),"
                " which says that equal values are sent as equal ones"
            )
        if has_bind_expression(column.type):
            raise SpecError(
                f"{where} is a {type(column.type).__name__} with an SQL expression around each"
                " value: the stored value is not the one that is sent, so it cannot be guarded"
            )
        for key in column.foreign_keys:
            cascades = (key.onupdate or "").upper() in ("CASCADE", "SET DEFAULT")
            if cascades and guard.feed == "capture":
                raise SpecError(
                    f"{where} changes by ON UPDATE {key.onupdate} without any statement on"
                    f" {table.fullname}: it cannot be guarded"
                )
    return Declared(guard, table, columns)


def _of_classes(table: Table) -> list[Guard]:
    """The guards in __bloomstore__ of the classes whose own table this is."""
    return [
        guard
        for mapper in mappers_of(table)
        for guard in _several(vars(mapper.class_).get("__bloomstore__"))
    ]


def _several(found: object) -> list[Guard]:
    if found is None:
        return []
    return list(found) if isinstance(found, (list, tuple)) else [found]  # type: ignore[list-item]


def _check(guard: object, where: str) -> None:
    if not isinstance(guard, Guard):
        raise SpecError(f"{where}: expected a Guard, found {guard!r}")
