"""`bloomstore db`."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import Outbox
from tests.cli.runner import Cli


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "app.db").touch()
    return f"sqlite:///{tmp_path}/app.db"


def test_up_current_and_down(cli: Cli, url: str) -> None:
    result = cli("db", "current", url)
    assert (result.status, result.out) == (1, "no revision, newest bloomstore_0002\n")
    assert cli.ok("db", "upgrade", url).out == "bloomstore_0002\n"
    assert cli.ok("db", "current", url).out == "bloomstore_0002\n"
    newest = {"revision": "bloomstore_0002", "newest": "bloomstore_0002", "elsewhere": False}
    assert cli.ok("db", "current", url, "--json").json == newest
    shown = cli.ok("db", "downgrade", url, "--to", "bloomstore_0001").out
    assert shown == "bloomstore_0001, newest bloomstore_0002\n"
    cli.ok("db", "downgrade", url)
    assert cli("db", "current", url, "--json").json["revision"] is None


def test_tables_of_the_own_alembic_are_seen_and_left_to_it(cli: Cli, url: str) -> None:
    migrate.upgrade(url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {migrate.VERSION_TABLE} RENAME TO alembic_version")
    engine.dispose()
    found = cli.ok("db", "current", url)
    assert found.out == "made by your own Alembic, newest bloomstore_0002\n"
    for action in ("upgrade", "downgrade"):
        result = cli("db", action, url)
        assert result.status == 2
        assert f"made by your own Alembic: run `alembic {action}` there" in result.err
    assert cli.ok("db", "check", url).out == "sound\n"


def test_the_sql_is_shown_and_not_run(cli: Cli, url: str) -> None:
    shown = cli.ok("db", "upgrade", url, "--sql").out
    assert "CREATE TABLE IF NOT EXISTS bloomstore_guards" in shown
    assert "DROP TABLE" in cli.ok("db", "downgrade", url, "--sql").out
    assert cli("db", "current", url).status == 1


def test_check_names_what_is_missing(cli: Cli, url: str) -> None:
    result = cli("db", "check", url)
    assert (result.status, result.lines[-1]) == (1, "problems: 2")
    assert "bloomstore db upgrade" in result.lines[0]
    migrate.upgrade(url)
    assert cli.ok("db", "check", url).out == "sound\n"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE users (id integer primary key)"))
        for statement in Outbox("users.id", "users", ["id"], None, engine.dialect).create():
            connection.exec_driver_sql(statement)
    assert cli.ok("db", "check", url, "--json").json == {"sound": True, "problems": []}
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE users"))
    engine.dispose()
    result = cli("db", "check", url, "--json")
    assert result.status == 1
    assert result.json == {
        "sound": False,
        "problems": ["guard users.id: there is no table 'users'"],
    }
    refused = cli("db", "downgrade", url)
    assert refused.status == 2
    assert "outboxes are in use, drop them first: users.id" in refused.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["upgrade", "nonsense"], "Could not parse SQLAlchemy URL"),
        (["upgrade", "sqlite:////nowhere/at/all.db"], "sqlite: unable to open database file"),
        (["check", "sqlite:////nowhere/at/all.db"], "all.db: there is no such file"),
        (["upgrade", "postgres://a"], "postgres://...: SQLAlchemy has no such kind of database"),
        (["upgrade", "URL", "--to", "bloomstore_9999"], "bloomstore_9999"),
        (["check", "URL", "--sql"], "--to and --sql are for upgrade and downgrade, not for check"),
    ],
)
def test_errors_are_one_line(cli: Cli, url: str, argv: list[str], words: str) -> None:
    result = cli("db", *[url if word == "URL" else word for word in argv])
    assert (result.status, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_an_error_never_shows_a_password(cli: Cli) -> None:
    result = cli("db", "current", "postgresql+psycopg://me:secret@localhost:1/x")
    assert result.status == 2
    assert "secret" not in result.err


def test_without_alembic_the_extra_is_named(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "alembic", None)
    result = cli("db", "upgrade", url)
    assert result.status == 2
    assert "pip install 'bloomstore[migrations]'" in result.err
