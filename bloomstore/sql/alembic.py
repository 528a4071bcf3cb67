"""For the application's own Alembic: outboxes and invalidations, in revisions and autogenerate.

In env.py:

    import bloomstore.sql.alembic                           # makes the operations known
    context.configure(..., include_object=bloomstore.sql.alembic.include_object)

In a revision:

    op.create_guard_outbox("users", ["email"])              # for Guard(feed="outbox")
    op.drop_guard_outbox("users", ["email"])
    op.invalidate_guard("users", ["email"])                 # its filters are useless from here on

Each is named like the guard it is for; `name=` is that of Guard(name=...). They need the tables of
`bloomstore db upgrade`, or of the branch `bloomstore`: a revision that uses them says
depends_on = "bloomstore_0002".

A filter is invalid to a process as soon as it reads the registry: on each new connection, and for
guards with an outbox on PostgreSQL in each transaction. The first process of a host that reads it
fences the filter for all of them. `invalidate_guard(..., store="guards/")` fences the filter of a
store on this host at once, whether the migration is committed or not.

Autogenerate puts an invalidation behind every change of a guarded column's type, length, scale or
collation; an outbox is dropped before the change and created again after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import bloomstore
from bloomstore.errors import MigrationError, SpecError
from bloomstore.sql.databases import database_of, is_known
from bloomstore.sql.guards.declaration import Declared, declared_on, name_of
from bloomstore.sql.guards.trust import INVALID
from bloomstore.sql.schema.migrate import needs_alembic
from bloomstore.sql.schema.outbox_tables import Outbox
from bloomstore.sql.schema.registry import TABLE as REGISTRY

needs_alembic()

from alembic.autogenerate import comparators, renderers  # noqa: E402
from alembic.autogenerate.api import AutogenContext  # noqa: E402
from alembic.operations import MigrateOperation, Operations  # noqa: E402
from alembic.operations.ops import AlterColumnOp, ModifyTableOps, UpgradeOps  # noqa: E402

__all__ = [
    "CreateGuardOutbox",
    "DropGuardOutbox",
    "InvalidateGuard",
    "include_object",
]


def include_object(
    item: object, name: str | None, kind: str, reflected: bool, compare_to: object
) -> bool:
    """Keeps bloomstore's own tables out of autogenerate."""
    table = item if kind == "table" else getattr(item, "table", None)
    table_name = str(getattr(table, "name", name))
    return not (table_name.startswith("bloomstore_") and (reflected or kind != "table"))


class GuardOperation(MigrateOperation):
    """The part that the three operations share: the guard that they are for."""

    directive = ""

    def __init__(
        self,
        table: str,
        columns: Sequence[str],
        *,
        schema: str | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(columns, str) or not columns:
            raise SpecError(f"{self.directive}: columns is a list of names, got {columns!r}")
        self.table = table
        self.columns = list(columns)
        self.schema = schema
        self.name = name_of(table, self.columns, schema) if name is None else name

    def outbox(self, operations: Operations) -> Outbox:
        """The statements for this database; the registry must be there."""
        context = operations.get_context()
        if not context.as_sql and not sa.inspect(operations.get_bind()).has_table(REGISTRY.name):
            raise MigrationError(
                f"{self.directive} of guard {self.name}: there is no table {REGISTRY.name};"
                " run `bloomstore db upgrade`, or depend on the revision bloomstore_0002"
            )
        return Outbox(self.name, self.table, self.columns, self.schema, context.dialect)

    @classmethod
    def of(cls, declared: Declared) -> GuardOperation:
        """The operation for a declared guard."""
        table, columns = declared.table, [column.name for column in declared.columns]
        return cls(table.name, columns, schema=table.schema, name=declared.name)

    def __repr__(self) -> str:
        named = self.name != name_of(self.table, self.columns, self.schema)
        given = [repr(self.table), repr(self.columns)]
        given += [] if self.schema is None else [f"schema={self.schema!r}"]
        given += [f"name={self.name!r}"] if named else []
        return f"op.{self.directive}({', '.join(given)})"

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """The operation as `alembic check` shows it."""
        return (self.directive, self.name)

    def _same(self, kind: type[GuardOperation]) -> GuardOperation:
        return kind(self.table, self.columns, schema=self.schema, name=self.name)


@Operations.register_operation("create_guard_outbox")
class CreateGuardOutbox(GuardOperation):
    """A table and triggers that keep each new key; the guard must be built after it."""

    directive = "create_guard_outbox"

    @classmethod
    def create_guard_outbox(
        cls, operations: Operations, table: str, columns: Sequence[str], **given: Any
    ) -> None:
        """Makes the outbox of a guard with feed="outbox"."""
        operations.invoke(cls(table, columns, **given))

    def require_columns(self, bind: sa.Connection) -> None:
        """Raises MigrationError if the table lacks a column.

        SQLite makes triggers for such a column, and then every INSERT into the table fails.
        """
        place = self.table if self.schema is None else f"{self.schema}.{self.table}"
        failed = f"{self.directive} of guard {self.name}"
        try:
            present = [
                str(each["name"]) for each in sa.inspect(bind).get_columns(self.table, self.schema)
            ]
        except sa.exc.NoSuchTableError:
            raise MigrationError(f"{failed}: there is no table {place}") from None
        folded = {name.lower() for name in present}  # the database itself minds the case, or not
        missing = [name for name in self.columns if name.lower() not in folded]
        if missing:
            raise MigrationError(
                f"{failed}: {place} has no column {missing[0]!r}, it has {', '.join(present)}"
            )

    def reverse(self) -> MigrateOperation:
        """The operation that drops the outbox."""
        return self._same(DropGuardOutbox)


@Operations.register_operation("drop_guard_outbox")
class DropGuardOutbox(GuardOperation):
    """Drops the outbox with all keys in it; the guard is invalid."""

    directive = "drop_guard_outbox"

    @classmethod
    def drop_guard_outbox(
        cls, operations: Operations, table: str, columns: Sequence[str], **given: Any
    ) -> None:
        """Drops the outbox of a guard. Stop the processes that use it first."""
        operations.invoke(cls(table, columns, **given))

    def reverse(self) -> MigrateOperation:
        """The operation that creates the outbox again, empty."""
        return self._same(CreateGuardOutbox)


@Operations.register_operation("invalidate_guard")
class InvalidateGuard(GuardOperation):
    """Filters that were built before answer UNKNOWN until they are built again."""

    directive = "invalidate_guard"

    def __init__(
        self, table: str, columns: Sequence[str], *, store: str | Path | None = None, **given: Any
    ) -> None:
        super().__init__(table, columns, **given)
        self.store = store

    @classmethod
    def invalidate_guard(
        cls, operations: Operations, table: str, columns: Sequence[str], **given: Any
    ) -> None:
        """Raises the guard's epoch; `store=` fences the filter of a store on this host at once."""
        operations.invoke(cls(table, columns, **given))

    def reverse(self) -> MigrateOperation:
        """The same operation: changing a column back is a change too."""
        return self._same(InvalidateGuard)


@Operations.implementation_for(CreateGuardOutbox)
def _create(operations: Operations, operation: CreateGuardOutbox) -> None:
    outbox = operation.outbox(operations)
    if not operations.get_context().as_sql:
        operation.require_columns(operations.get_bind())
    for statement in outbox.create():
        _execute(operations, statement)


@Operations.implementation_for(DropGuardOutbox)
def _drop(operations: Operations, operation: DropGuardOutbox) -> None:
    for statement in operation.outbox(operations).drop():
        _execute(operations, statement)


@Operations.implementation_for(InvalidateGuard)
def _invalidate(operations: Operations, operation: InvalidateGuard) -> None:
    if operation.store is not None and not operations.get_context().as_sql:
        with bloomstore.open(operation.store, create=False) as store:
            if operation.name in store:
                store[operation.name].fence(INVALID, renew=True)
    _execute(operations, operation.outbox(operations).invalidate())


def _execute(operations: Operations, statement: str) -> None:
    """Runs or writes a statement as it is, whatever colons and percent signs its names have.

    Alembic would write text as it is sent to a driver, with every percent sign doubled.
    """
    context = operations.get_context()
    if context.as_sql:
        context.impl.static_output(statement + context.impl.command_terminator)
    else:
        operations.execute(sa.text(statement.replace(":", r"\:")))


# Autogenerate --------------------------------------------------------------------------


@renderers.dispatch_for(CreateGuardOutbox)
@renderers.dispatch_for(DropGuardOutbox)
@renderers.dispatch_for(InvalidateGuard)
def _render(context: AutogenContext, operation: GuardOperation) -> str:
    return repr(operation)


try:
    from alembic.util import DispatchPriority

    _AT_THE_END: dict[str, Any] = {"priority": DispatchPriority.LAST}
except ImportError:  # before Alembic 1.18 it is the order of registration
    _AT_THE_END = {}


@comparators.dispatch_for("schema", **_AT_THE_END)
def _compare(context: AutogenContext, found: UpgradeOps, schemas: Any) -> None:
    """Puts operations for the guards of a changed column around the change.

    Not into the changes of the table itself: those may be one batch, and SQLite's batch makes a
    new table, without triggers.
    """
    for table in context.sorted_tables:
        guards = list(declared_on(table))
        changes = [
            each
            for each in found.ops
            if isinstance(each, ModifyTableOps) and _is_of(each, table, context)
        ]
        changed = {
            operation.column_name
            for change in changes
            for operation in change.ops
            if isinstance(operation, AlterColumnOp) and operation.modify_type is not None
        }
        changed |= _collated_otherwise(context, table, guards)
        for guard in guards:
            if not changed.intersection(column.name for column in guard.columns):
                continue
            if guard.guard.feed == "outbox":  # creating it again invalidates too
                place = found.ops.index(changes[0]) if changes else len(found.ops)
                found.ops.insert(place, DropGuardOutbox.of(guard))
                found.ops.insert(place + 1 + len(changes), CreateGuardOutbox.of(guard))
            else:
                place = found.ops.index(changes[-1]) + 1 if changes else len(found.ops)
                found.ops.insert(place, InvalidateGuard.of(guard))


def _is_of(changes: ModifyTableOps, table: sa.Table, context: AutogenContext) -> bool:
    """Whether these are the table's own changes; Alembic leaves the default schema out."""
    assert context.dialect is not None
    default = context.dialect.default_schema_name
    return changes.table_name == table.name and (changes.schema or default) == (
        table.schema or default
    )


def _collated_otherwise(
    context: AutogenContext, table: sa.Table, guards: list[Declared]
) -> set[str]:
    """Guarded columns whose collation differs from the declared one; Alembic compares none."""
    assert context.dialect is not None
    wanted = {
        column.name: str(collation)
        for guard in guards
        for column in guard.columns
        if (collation := getattr(column.type.dialect_impl(context.dialect), "collation", None))
    }
    if not wanted or not is_known(context.dialect) or context.connection is None:
        return set()
    database = database_of(context.dialect)
    raw = context.connection.connection.dbapi_connection
    assert raw is not None
    live = database.read_table(raw.cursor(), table.schema, table.name).columns
    return {
        name
        for name, collation in wanted.items()
        if name.lower() in live and live[name.lower()].collation.lower() != collation.lower()
    }
