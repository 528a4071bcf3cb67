"""The tables of bloomstore in a guarded database: upgraded, downgraded and checked.

    upgrade("postgresql+psycopg://...")       # what `bloomstore db upgrade URL` does
    list(check(url))                          # problems of the guards' tables, one line each

The revisions are in the folder migrations/ of a checkout, bloomstore/migrations/ of a wheel.
Alembic is needed for upgrade, downgrade and current, and is an extra: bloomstore[migrations].
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, make_url

import bloomstore
from bloomstore.errors import MigrationError
from bloomstore.sql.databases import database_of
from bloomstore.sql.schema.connect import connected, database_errors
from bloomstore.sql.schema.incarnation import TABLE as INCARNATION
from bloomstore.sql.schema.outbox_tables import PREFIX as OUTBOX_PREFIX
from bloomstore.sql.schema.outbox_tables import key_names, trigger_names
from bloomstore.sql.schema.registry import TABLE as REGISTRY
from bloomstore.sql.schema.registry import Entry, Unreadable, read_registry

VERSION_TABLE = "bloomstore_alembic_version"


def location() -> Path:
    """The folder of the Alembic environment."""
    package = Path(bloomstore.__file__).parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").exists():
            return folder
    raise MigrationError(f"the migrations are missing: neither in {package} nor beside it")


def upgrade(url: str, to: str = "head") -> None:
    """Brings the tables to a revision. Raises MigrationError or DatabaseError."""
    with connected(url, may_be_new=True) as engine, engine.begin() as connection:
        _require_own(connection, "upgrade")
        _run("upgrade", to, connection=connection)


def downgrade(url: str, to: str = "base") -> None:
    """Takes the tables back to a revision. Every guard answers UNKNOWN until it is built again."""
    with connected(url) as engine, engine.begin() as connection:
        _require_own(connection, "downgrade")
        _run("downgrade", to, connection=connection)


def statements(url: str, action: str, to: str) -> str:
    """The SQL of an upgrade or downgrade, for another program to run."""
    with database_errors(url):
        dialect = make_url(url).get_dialect().name
    if action == "downgrade" and ":" not in to:
        to = f"head:{to}"
    out = StringIO()
    _run(action, to, sql=True, dialect=dialect, out=out)
    return out.getvalue()


def current(url: str) -> tuple[str | None, str]:
    """The revision of the database (None: none yet, or see is_elsewhere) and the newest one."""
    needs_alembic()
    from alembic.script import ScriptDirectory

    with connected(url) as engine, engine.begin() as connection:
        found = _revision(connection)
    return found, ScriptDirectory(str(location())).get_current_head() or ""


def is_elsewhere(url: str) -> bool:
    """Whether the tables were made by another Alembic, which knows their revision."""
    needs_alembic()
    with connected(url) as engine, engine.begin() as connection:
        return _is_elsewhere(connection)


def _revision(connection: Connection) -> str | None:
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _is_elsewhere(connection: Connection) -> bool:
    """Whether another Alembic made the tables: no build makes the registry."""
    return _revision(connection) is None and inspect(connection).has_table(REGISTRY.name)


def _require_own(connection: Connection, action: str) -> None:
    """Refuses a second version table, which would contradict the first sooner or later."""
    needs_alembic()
    if _is_elsewhere(connection):
        raise MigrationError(
            f"{action}: {REGISTRY.name} was made by your own Alembic: run `alembic {action}` there"
        )


# Looking -----------------------------------------------------------------------------


def check(url: str) -> Iterator[str]:
    """Yields the problems that keep the guards of this database from working, one line each."""
    with connected(url) as engine, engine.begin() as connection:
        tables = set(inspect(connection).get_table_names())
        missing = [table.name for table in (INCARNATION, REGISTRY) if table.name not in tables]
        for name in missing:
            yield f"the table {name} is missing: run `bloomstore db upgrade`"
        if missing:
            return
        raw = connection.connection.dbapi_connection
        try:
            entries = read_registry(raw)
        except Unreadable as error:
            yield str(error)
            return
        known = {entry.outbox for entry in entries.values()}
        for name in sorted(name for name in tables - known if name.startswith(OUTBOX_PREFIX)):
            yield f"the outbox {name} has no row in {REGISTRY.name}: its revision did not complete"
        for entry in entries.values():
            for problem in _problems(connection, entry):
                yield f"guard {entry.name}: {problem}"


def _problems(connection: Connection, entry: Entry) -> Iterator[str]:
    raw = connection.connection.dbapi_connection
    assert raw is not None
    database = database_of(connection.dialect)
    facts = database.read_table(raw.cursor(), entry.schema, entry.table)
    if facts.doubt:
        yield facts.doubt
        return
    for name in entry.columns:
        column = facts.columns.get(name.lower())
        if column is None or column.doubt:
            yield f"column {name}: {'there is no such column' if column is None else column.doubt}"
    if entry.outbox is None:
        return
    if facts.unfed:
        yield f"{facts.unfed}: invalidate the guard after each"
    for name in trigger_names(entry.name):
        if name not in facts.feeds:
            yield f"the trigger {name} is missing or does not always run"
    outbox = database.read_table(raw.cursor(), entry.schema, entry.outbox)
    if outbox.doubt:
        yield f"its outbox: {outbox.doubt}"
        return
    for name, key in zip(entry.columns, key_names(len(entry.columns)), strict=True):
        guarded, kept = facts.columns.get(name.lower()), outbox.columns.get(key)
        if kept is None:
            yield f"its outbox {entry.outbox} has no column {key}"
        elif database.TRAITS.outbox_has_types and guarded and guarded.type != kept.type:
            yield f"column {name} is {guarded.type}, its outbox keeps {kept.type}: create it again"


# Alembic -----------------------------------------------------------------------------


def needs_alembic() -> None:
    """Raises MigrationError with the missing extra if Alembic is not installed."""
    try:
        import alembic  # noqa: F401
    except ImportError:
        raise MigrationError(
            "migrations need Alembic: pip install 'bloomstore[migrations]'"
        ) from None


def _run(
    action: str, to: str, *, sql: bool = False, out: StringIO | None = None, **given: Any
) -> None:
    needs_alembic()
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config(output_buffer=out)
    config.set_main_option("script_location", str(location()).replace("%", "%%"))
    config.attributes.update(given)
    try:
        getattr(command, action)(config, to, sql=sql)
    except CommandError as error:
        raise MigrationError(f"{action} to {to}: {error}") from None
