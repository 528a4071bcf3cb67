"""Outboxes and invalidations in an application's own revisions, and in autogenerate."""

from __future__ import annotations

import io
import subprocess
from typing import Any, cast

import pytest
import sqlalchemy as sa
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations

import bloomstore
from bloomstore.errors import MigrationError, SpecError
from bloomstore.sql import Answer, BloomPlugin, Guard
from bloomstore.sql.alembic import InvalidateGuard, include_object
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import outbox_name

MAKES = (
    "op.create_table('users', sa.Column('id', sa.Integer, primary_key=True),"
    " sa.Column('age', sa.Integer))"
)
NAMES = ["users", "bloomstore_incarnation", "bloomstore_guards", outbox_name("users.age")]


def tables(engine: sa.Engine) -> list[str]:
    found = set(sa.inspect(engine).get_table_names()) - {"alembic_version"}
    return [name for name in NAMES if name in found] + sorted(found - set(NAMES))


def ages(engine: sa.Engine) -> list[int]:
    """What the outbox has."""
    with engine.connect() as connection:
        return list(
            connection.execute(sa.text(f"SELECT key_1 FROM {outbox_name('users.age')}")).scalars()
        )


@pytest.fixture
def revised(application):
    """An application with a table, and an outbox in its second revision."""
    application.revise("first", MAKES, "op.drop_table('users')")
    application.revise(
        "second",
        "op.create_guard_outbox('users', ['age'])",
        "op.drop_guard_outbox('users', ['age'])",
        after="first",
        depends="bloomstore_0002",
    )
    return application


def test_the_branch_and_an_outbox_go_up_down_and_up(revised, engine) -> None:
    for _ in range(2):
        revised("upgrade", "heads")
        assert tables(engine) == NAMES
        with engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM users"))
            connection.execute(sa.text("INSERT INTO users VALUES (1, 5), (2, NULL)"))
            connection.execute(sa.text("UPDATE users SET age = 6 WHERE id = 1"))
            connection.execute(sa.text("UPDATE users SET id = 3 WHERE id = 1"))
        assert ages(engine) == [5, 6]
        revised("downgrade", "first")
        assert tables(engine) == NAMES[:3]
    revised("downgrade", "base")
    assert tables(engine) == []


def test_check_says_what_an_outbox_lacks(revised, engine, url, kind) -> None:
    revised("upgrade", "heads")
    named = url.render_as_string(hide_password=False)
    assert list(migrate.check(named)) == []
    on = " ON users" if kind == "postgresql" else ""
    with engine.begin() as connection:
        connection.execute(sa.text(f"DROP TRIGGER {outbox_name('users.age')}_u{on}"))
    (problem,) = migrate.check(named)
    assert "guard users.age: the trigger" in problem
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE " + outbox_name("users.age")))
    assert any("no table" in problem for problem in migrate.check(named))


def test_an_operation_before_the_tables_says_what_to_run(engine) -> None:
    with engine.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        with pytest.raises(MigrationError, match="bloomstore db upgrade"):
            cast("Any", operations).create_guard_outbox("users", ["age"])
    with pytest.raises(SpecError, match="list of names"):
        InvalidateGuard("users", "age")


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("users", ["id", "aeg"], "guard users.*: users has no column 'aeg', it has id, age"),
        ("user", ["age"], "guard user.age: there is no table user"),
    ],
)
def test_an_outbox_for_columns_that_are_not_there_is_refused(
    application, engine, table, columns, message
) -> None:
    """SQLite would make the triggers, and refuse every row from then on."""
    application.revise("first", MAKES, "pass", depends="bloomstore_0002")
    application("upgrade", "heads")
    before = set(sa.inspect(engine).get_table_names())
    with engine.begin() as connection:
        operations: Any = Operations(MigrationContext.configure(connection))
        with pytest.raises(MigrationError, match=message):
            operations.create_guard_outbox(table, columns)
    assert set(sa.inspect(engine).get_table_names()) == before
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO users VALUES (1, 5)"))
        assert connection.scalar(sa.text("SELECT count(*) FROM bloomstore_guards")) == 0


def test_an_operation_is_rendered_as_it_is_called() -> None:
    code = InvalidateGuard("users", ["a", "b"], schema="s", name="x")
    assert repr(code) == "op.invalidate_guard('users', ['a', 'b'], schema='s', name='x')"
    assert repr(code.reverse()) == repr(code)


def test_a_revision_can_be_written_as_sql(revised, engine) -> None:
    revised.config.output_buffer = out = io.StringIO()
    revised("upgrade", "heads", sql=True)
    assert f"CREATE TABLE {outbox_name('users.age')}" in out.getvalue().replace('"', "").replace(
        "public.", ""
    ).replace("`", "")
    assert tables(engine) == []


def run_script(script: str, engine: sa.Engine, kind: str) -> None:
    """As an administrator would: by the client program, or what it does with a script."""
    if kind == "sqlite":
        raw = engine.raw_connection()
        cast("Any", raw.driver_connection).executescript(script)
        raw.close()
    elif kind == "postgresql":
        with engine.connect() as connection:
            driven: Any = connection.connection.driver_connection
            driven.execute(script)
            driven.commit()
    else:
        url = engine.url
        server = [f"--socket={url.query['unix_socket']}", f"--user={url.username}"]
        subprocess.run(["mariadb", *server, str(url.database)], input=script, text=True, check=True)


@pytest.mark.parametrize("column", ["age", "50%", "a:b", "a%s", "%(a)s"])
def test_a_script_of_a_revision_makes_what_the_revision_makes(
    application, engine, url, kind, column
) -> None:
    """Clients of MariaDB end a statement at each semicolon, whatever is around it."""
    if kind == "sqlite" and column == "%(a)s" and sa.__version__.startswith("2.0."):
        pytest.skip("SQLAlchemy 2.0 cannot write to such a column of SQLite")
    table = sa.Table(
        "t%", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column(column, sa.Integer)
    )
    table.create(engine)
    outbox = f"op.create_guard_outbox('t%', [{column!r}], name='g%:x')"
    application.revise("only", outbox, "pass", depends="bloomstore_0002")
    application.config.output_buffer = out = io.StringIO()
    application("upgrade", "heads", sql=True)
    run_script(out.getvalue(), engine, kind)
    with engine.begin() as connection:
        connection.execute(table.insert().values({"id": 1, column: 5}))
        connection.execute(table.update().values({column: 6}))
        found = sa.text(f"SELECT key_1 FROM {outbox_name('g%:x')} ORDER BY key_1")
        assert connection.execute(found).scalars().all() == [5, 6]
    assert list(migrate.check(url.render_as_string(hide_password=False))) == []


@pytest.mark.parametrize("column", ["50%", "a:b", "a%s"])
def test_a_revision_takes_names_that_drivers_read_otherwise(application, engine, column) -> None:
    table = sa.Table("t%", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column(column, sa.Text))
    table.create(engine)
    given = f"('t%', [{column!r}])"
    up, down = f"op.create_guard_outbox{given}", f"op.drop_guard_outbox{given}"
    application.revise("only", up, down, depends="bloomstore_0002")
    application("upgrade", "heads")
    with engine.begin() as connection:
        connection.execute(table.insert().values({"id": 1, column: "x"}))
        found = sa.text(f"SELECT key_1 FROM {outbox_name(f't%.{column}')}")
        assert connection.execute(found).scalars().all() == ["x"]
    application("downgrade", "base")
    assert outbox_name(f"t%.{column}") not in sa.inspect(engine).get_table_names()


def test_check_finds_an_outbox_that_was_made_by_half(revised, engine, url) -> None:
    revised("upgrade", "heads")
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM bloomstore_guards"))
    (problem,) = migrate.check(url.render_as_string(hide_password=False))
    assert outbox_name("users.age") in problem
    assert "did not complete" in problem


@pytest.fixture
def guarded(engine: sa.Engine, url: sa.URL) -> sa.MetaData:
    """A table with a guard, and bloomstore's tables."""
    migrate.upgrade(url.render_as_string(hide_password=False))
    metadata = sa.MetaData()
    guard = {"bloomstore": Guard()}
    key = sa.Column("id", sa.Integer, primary_key=True, autoincrement=False, info=guard)
    sa.Table("users", metadata, key)
    metadata.create_all(engine)
    return metadata


def invalidate(engine: sa.Engine, **given: object) -> None:
    with engine.begin() as connection:
        operations: Any = Operations(MigrationContext.configure(connection))
        operations.invalidate_guard("users", ["id"], **given)


def test_an_invalidated_guard_is_unknown_until_it_is_built(engine, url, guarded, store) -> None:
    column = guarded.tables["users"].c.id
    running = sa.create_engine(url)
    plugin, other = (BloomPlugin(store, guarded) for _ in range(2))
    plugin.listen(running)
    plugin.build(running)
    assert plugin.probe(column, 5) is Answer.ABSENT
    invalidate(engine)
    assert plugin.probe(column, 5) is Answer.ABSENT  # no new connection yet
    other.listen(engine)  # one process of this host has a new connection: all know
    assert "invalidated" in other.probe(column, 5).reason
    assert "invalidated" in plugin.probe(column, 5).reason
    other.build(engine)
    assert other.probe(column, 5) is Answer.ABSENT
    assert plugin.probe(column, 5) is Answer.ABSENT  # though it has not seen the new epoch
    running.dispose()
    with running.connect():
        assert plugin.probe(column, 5) is Answer.ABSENT
    for each in (plugin, other):
        each.unlisten()
    running.dispose()


def test_an_invalidation_with_a_store_fences_at_once(engine, guarded, store) -> None:
    column = guarded.tables["users"].c.id
    plugin = BloomPlugin(store, guarded)
    plugin.listen(engine)
    plugin.build(engine)
    invalidate(engine, store=store.path)
    assert plugin.probe(column, 5) == Answer.UNKNOWN
    plugin.build(engine)
    assert plugin.probe(column, 5) is Answer.ABSENT
    plugin.unlisten()


def test_a_registry_that_cannot_be_read_is_doubt(engine, guarded, store) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE bloomstore_guards RENAME TO bloomstore_other"))
        connection.execute(sa.text("CREATE TABLE bloomstore_guards (name integer)"))
    plugin = BloomPlugin(store, guarded)
    plugin.listen(engine)
    assert "cannot be read" in plugin.probe(guarded.tables["users"].c.id, 5).reason
    plugin.unlisten()


def directives(engine: sa.Engine, metadata: sa.MetaData) -> str:
    """What autogenerate writes for an upgrade."""
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_object": include_object, "target_metadata": metadata}
        )
        script = produce_migrations(context, metadata)
        up, down = script.upgrade_ops, script.downgrade_ops
        assert up is not None
        assert down is not None
        return render_python_code(up) + render_python_code(down)


def changed(guard: Guard, type_: Any) -> sa.MetaData:
    metadata = sa.MetaData()
    sa.Table(
        "users",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("code", type_, info={"bloomstore": guard}),
        sa.Column("other", sa.String(10)),
    )
    return metadata


@pytest.mark.parametrize("feed", ["capture", "outbox"])
def test_autogenerate_invalidates_when_a_guarded_column_changes(engine, url, kind, feed) -> None:
    migrate.upgrade(url.render_as_string(hide_password=False))
    guard = Guard(feed=feed)
    changed(guard, sa.String(10)).create_all(engine)
    assert "guard" not in directives(engine, changed(guard, sa.String(10)))
    if kind == "sqlite" and feed == "capture":
        assert "guard" not in directives(engine, sa.MetaData())
    for type_ in (sa.String(20), sa.Numeric(10, 2)):
        written = directives(engine, changed(guard, type_)).splitlines()
        lines = [line.strip() for line in written if "op." in line]
        names = [line.split("(")[0].removeprefix("op.") for line in lines]
        if feed == "capture":
            upgrade = ["alter_column", "invalidate_guard"]
            assert names == [*upgrade, *reversed(upgrade)]
            assert lines[1] == "op.invalidate_guard('users', ['code'])"
        else:
            both = ["drop_guard_outbox", "alter_column", "create_guard_outbox"]
            assert names == 2 * both
            assert lines[-1] == "op.create_guard_outbox('users', ['code'])"


def test_autogenerate_sees_another_collation(engine, url, kind) -> None:
    migrate.upgrade(url.render_as_string(hide_password=False))
    one, two = {
        "sqlite": ("NOCASE", "RTRIM"),
        "postgresql": ("C", "POSIX"),
        "mariadb": ("utf8mb4_bin", "utf8mb4_nopad_bin"),
    }[kind]
    guard = Guard()
    changed(guard, sa.String(10, collation=one)).create_all(engine)
    assert "guard" not in directives(engine, changed(guard, sa.String(10, collation=one)))
    found = directives(engine, changed(guard, sa.String(10, collation=two)))
    assert "op.invalidate_guard('users', ['code'])" in found


def test_bloomstores_tables_stay_out_of_autogenerate(engine, url, store: bloomstore.Store) -> None:
    migrate.upgrade(url.render_as_string(hide_password=False))
    assert "bloomstore" not in directives(engine, sa.MetaData()).replace(
        "bloomstore_alembic_version", ""
    )
