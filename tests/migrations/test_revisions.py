"""Every revision goes up, down and up again, on every database."""

from __future__ import annotations

import ast
import tomllib

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from bloomstore.errors import DatabaseError, MigrationError
from bloomstore.sql.schema import incarnation, migrate, registry
from bloomstore.sql.schema.incarnation import ensure_incarnation
from tests.support.checkout import ROOT

REVISIONS = [
    script.revision for script in ScriptDirectory(str(migrate.location())).walk_revisions()
]


def tables(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names()) - {migrate.VERSION_TABLE}


def named(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_goes_up_down_and_up(engine, url, revision: str) -> None:
    migrate.upgrade(named(url), revision)
    before = tables(engine)
    assert migrate.current(named(url))[0] == revision
    migrate.downgrade(named(url), f"{revision}-1" if revision != REVISIONS[-1] else "base")
    assert tables(engine) < before
    migrate.upgrade(named(url), revision)
    assert tables(engine) == before
    migrate.downgrade(named(url))
    assert tables(engine) == set()


def test_the_tables_are_those_that_the_plugin_uses(engine, url) -> None:
    migrate.upgrade(named(url))
    assert tables(engine) == {incarnation.TABLE.name, registry.TABLE.name}
    for table in (incarnation.TABLE, registry.TABLE):
        found = {column["name"]: column for column in sa.inspect(engine).get_columns(table.name)}
        assert list(found) == table.columns.keys()
        for column in table.columns:
            assert found[column.name]["nullable"] is column.nullable
            length = getattr(column.type, "length", None)
            assert getattr(found[column.name]["type"], "length", None) == length


def test_a_table_that_a_build_has_made_is_accepted(engine, url) -> None:
    ensure_incarnation(engine)
    with engine.connect() as connection:
        before = connection.execute(sa.select(incarnation.TABLE)).all()
    migrate.upgrade(named(url))
    with engine.connect() as connection:
        assert connection.execute(sa.select(incarnation.TABLE)).all() == before


def test_a_downgrade_of_the_registry_takes_the_incarnation_along(engine, url) -> None:
    migrate.upgrade(named(url))
    ensure_incarnation(engine)
    migrate.downgrade(named(url), "bloomstore_0001")
    with engine.connect() as connection:
        assert connection.execute(sa.select(incarnation.TABLE)).all() == []


def test_errors_name_what_and_where() -> None:
    with pytest.raises(MigrationError, match="bloomstore_9999"):
        migrate.upgrade("sqlite://", "bloomstore_9999")
    with pytest.raises(DatabaseError, match="sqlite: unable to open") as raised:
        migrate.upgrade("sqlite:////nowhere/at/all.db")
    assert "\n" not in str(raised.value)


def test_the_migrations_are_in_the_package() -> None:
    """What a wheel is made of, as setup.py and pyproject.toml say it."""
    parsed = ast.parse((ROOT / "setup.py").read_text())
    calls = [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    (setup,) = [call for call in calls if getattr(call.func, "id", "") == "setup"]
    given = {keyword.arg: keyword.value for keyword in setup.keywords}
    assert ast.literal_eval(given["package_dir"]) == {"bloomstore.migrations": "migrations"}
    packages = {
        node.value for node in ast.walk(given["packages"]) if isinstance(node, ast.Constant)
    }
    assert packages >= {"bloomstore.migrations", "bloomstore.migrations.versions"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "script.py.mako" in settings["package-data"]["bloomstore.migrations"]
    own = migrate.location()
    assert (own / "env.py").exists()
    assert (own / "script.py.mako").exists()
    assert len(list(own.glob("versions/*.py"))) >= 2
