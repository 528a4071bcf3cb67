"""Where a name leads: text and listeners may change the settings of a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import String, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession
from bloomstore.sql.attached import CHANGED
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.kinds import only_mariadb, only_postgresql, only_servers
from tests.sql.support.models import Team, User


def run(engine: sa.Engine, *statements: str) -> None:
    """By an engine that nobody listens to."""
    other = sa.create_engine(engine.url)
    with other.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    other.dispose()


@pytest.fixture
def elsewhere(engine: sa.Engine, kind: str) -> Iterator[str]:
    """A schema with a table `users` of its own that has the row 777."""
    cascade = " CASCADE" if kind == "postgresql" else ""
    columns = "id INTEGER PRIMARY KEY, email VARCHAR(60), age INTEGER, team_id INTEGER"
    run(
        engine,
        f"DROP SCHEMA IF EXISTS elsewhere{cascade}",
        "CREATE SCHEMA elsewhere",
        f"CREATE TABLE elsewhere.users ({columns})",
        "INSERT INTO elsewhere.users (id) VALUES (777)",
    )
    yield "elsewhere"
    engine.dispose()
    run(engine, f"DROP SCHEMA elsewhere{cascade}")


def asked(session: Session, key: int) -> tuple[bool, bool]:
    """Whether get and Guarded() find the row."""
    query = select(User.id).where(User.id == key).options(Guarded())
    return session.get(User, key) is not None, session.scalars(query).all() == [key]


@only_postgresql
@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE teams; ALTER TABLE teams_new RENAME TO teams",
        "BEGIN; ALTER TABLE teams RENAME TO teams_old; ALTER TABLE teams_new RENAME TO teams",
        "SET lock_timeout = '5s'; DROP TABLE teams; ALTER TABLE teams_new RENAME TO teams",
        "SELECT 1; DROP TABLE teams; ALTER TABLE teams_new RENAME TO teams",
    ],
)
def test_several_statements_in_one_text(plugin, engine, sessions, sql) -> None:
    run(
        engine,
        "ALTER TABLE users DROP CONSTRAINT users_team_id_fkey",
        "CREATE TABLE teams_new (LIKE teams INCLUDING ALL)",
        "INSERT INTO teams_new VALUES (777, gen_random_uuid())",
    )
    with engine.begin() as connection:
        connection.exec_driver_sql(sql)
    with sessions() as session:
        assert session.get(Team, 777) is not None
    assert plugin.probe(Team.id, 777) == Answer.UNKNOWN


@only_postgresql
@pytest.mark.parametrize(
    "form", ["text", "suffix", "literal column", "hint", "prefix", "of an insert", "of a delete"]
)
def test_text_inside_of_a_statement(plugin, engine, form) -> None:
    more = "; INSERT INTO teams VALUES (777, gen_random_uuid()); SELECT 1"
    one: Any = sa.literal_column("1")
    statements: dict[str, Any] = {
        "text": select(text(f"1{more}")),
        "suffix": select(one).suffix_with(more),
        "literal column": select(sa.literal_column(f"1{more}")),
        "hint": select(User.id).with_statement_hint(more),
        "prefix": select(one).prefix_with(f"1{more},"),
        "of an insert": sa.insert(User).from_select(
            ["id"], select(sa.literal_column("5")).suffix_with(more)
        ),
        "of a delete": sa.delete(User).where(text(f"true{more}")),
    }
    with engine.begin() as connection:
        connection.execute(statements[form])
    assert every_row_is_known(plugin, engine) > 0


@only_postgresql
@pytest.mark.parametrize(
    "how",
    [
        "SET ROLE elsewhere",
        "SET LOCAL ROLE elsewhere",
        "SET SESSION AUTHORIZATION elsewhere",
        "UPDATE pg_settings SET setting = 'elsewhere' WHERE name = 'search_path'",
        "SELECT leads_elsewhere()",
        "SELECT DISTINCT ON (y) leads_elsewhere() FROM (VALUES (1)) v(y)",
        "CREATE TABLE made AS SELECT leads_elsewhere()",
        "EXPLAIN ANALYZE CREATE TEMP TABLE users AS SELECT * FROM elsewhere.users",
        "SET search_path TO elsewhere; SELECT 1",
        "SAVEPOINT a; SET search_path TO elsewhere",
    ],
)
def test_text_that_leads_names_elsewhere(plugin, engine, sessions, elsewhere, how) -> None:
    run(
        engine,
        "DROP ROLE IF EXISTS elsewhere",
        "CREATE ROLE elsewhere",
        "GRANT ALL ON SCHEMA elsewhere TO elsewhere",
        "GRANT ALL ON elsewhere.users TO elsewhere",
        "CREATE FUNCTION leads_elsewhere() RETURNS text LANGUAGE sql"
        " AS 'SELECT set_config(''search_path'', ''elsewhere'', false)'",
    )
    try:
        with sessions() as session:
            assert asked(session, 777) == (False, False)
            session.execute(text(how))
            assert asked(session, 777) == (True, True)
    finally:
        engine.dispose()
        run(engine, "DROP OWNED BY elsewhere", "DROP ROLE elsewhere")


@only_postgresql
def test_text_that_makes_another_operator(plugin, engine, sessions) -> None:
    run(
        engine,
        "CREATE FUNCTION same(varchar, varchar) RETURNS boolean IMMUTABLE LANGUAGE sql"
        " AS 'SELECT lower($1)::text = lower($2)::text'",
        "INSERT INTO users (id, email) VALUES (1, 'abc')",
    )
    plugin.build(engine)
    query = select(User.id).where(User.email == "ABC").options(Guarded())
    with sessions() as session:
        assert session.scalars(query).all() == []
        session.execute(
            text("CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same)")
        )
        session.commit()
        assert session.scalars(query).all() == [1]


@only_postgresql
@pytest.mark.parametrize("how", ["RESET search_path", "RESET ALL", "DISCARD ALL"])
def test_what_a_connection_began_with_comes_back(store, engine, elsewhere, how) -> None:
    """Its settings were made by a listener after the server's own."""
    run(engine, "INSERT INTO users (id) VALUES (5)")

    @sa.event.listens_for(engine, "connect")
    def begins(raw: Any, record: Any) -> None:
        raw.execute("SET search_path = elsewhere, public")
        raw.commit()

    engine.dispose()
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, User.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with sessions() as session:
        assert session.get(User, 5) is None
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        session.execute(text(how))
        assert asked(session, 5) == (True, True)
    plugin.unlisten()


@only_postgresql
@pytest.mark.parametrize("sql", ["DROP TABLE elsewhere.users", "DROP SCHEMA elsewhere CASCADE"])
def test_a_table_that_stood_in_front_is_dropped(store, engine, elsewhere, sql) -> None:
    run(engine, "INSERT INTO users (id) VALUES (5)")
    path = {"options": "-csearch_path=elsewhere,public"}
    other = sa.create_engine(engine.url, connect_args=path)
    sessions = sessionmaker(other, class_=GuardedSession)
    plugin = BloomPlugin(store, User.metadata)
    plugin.listen(other, sessions)
    plugin.build(other)
    with other.begin() as connection:
        connection.execute(text(sql))
    with sessions() as session:
        assert asked(session, 5) == (True, True)
    plugin.unlisten()
    other.dispose()
    run(engine, "CREATE SCHEMA IF NOT EXISTS elsewhere")


class Own(DeclarativeBase):
    """A guard that names its schema."""


class Placed(Own):
    __tablename__ = "users"
    __table_args__ = ({"schema": "elsewhere"},)
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )
    email: Mapped[str | None] = mapped_column(String(60))


@only_servers
@pytest.mark.parametrize("form", ["lasting", "local", "by a function"])
def test_a_write_without_a_schema_reaches_the_guarded_one(
    store, engine, kind, elsewhere, form
) -> None:
    if kind == "mariadb" and form != "lasting":
        pytest.skip("MariaDB has USE")
    how = {
        "lasting": "SET search_path TO elsewhere" if kind == "postgresql" else "USE elsewhere",
        "local": "SET LOCAL search_path TO elsewhere",
        "by a function": "SELECT set_config('search_path', 'elsewhere', false)",
    }[form]
    plugin = BloomPlugin(store, Own.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    other = sa.create_engine(engine.url)
    asks = BloomPlugin(store, Own.metadata)
    asks.listen(other)
    with Session(engine) as session:
        session.execute(text(how))
        session.add(User(id=778, email="w@x"))
        session.commit()
    assert asks.probe(Placed.id, 778) is not Answer.ABSENT
    for each in (plugin, asks):
        each.unlisten()
    other.dispose()


TENANT: ContextVar[str] = ContextVar("tenant")


@only_servers
@pytest.mark.parametrize(
    "event", ["checkout", "begin", "after_begin", "before_cursor_execute", "before_execute"]
)
def test_a_listener_leads_each_tenant_to_its_own_tables(
    store, engine, kind, elsewhere, event
) -> None:
    home = "public" if kind == "postgresql" else engine.url.database
    TENANT.set(home)
    sessions = sessionmaker(engine, class_=GuardedSession)

    def leads(raw: Any) -> None:
        name = TENANT.get()
        raw.cursor().execute(
            f"SET search_path = {name}, public" if kind == "postgresql" else f"USE {name}"
        )

    if event == "checkout":

        def checked_out(raw: Any, *_: Any) -> None:
            leads(raw)
            raw.commit()

        sa.event.listen(engine, "checkout", checked_out)
    elif event != "after_begin":
        sa.event.listen(engine, event, lambda connection, *rest: leads(connection.connection))
    else:
        sa.event.listen(
            sessions, "after_begin", lambda s, t, connection: leads(connection.connection)
        )
    plugin = BloomPlugin(store, User.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with sessions() as session:
        assert asked(session, 777) == (False, False)
    TENANT.set(elsewhere)
    with sessions() as session:
        assert asked(session, 777) == (True, True)
        session.add(User(id=779))
        session.commit()
        assert asked(session, 779) == (True, True)
    TENANT.set(home)
    with sessions() as session:
        assert asked(session, 777) == (False, False)
    plugin.unlisten()
    engine.dispose()


@only_postgresql
@pytest.mark.parametrize("given", ["creator", "do_connect", "connect"])
def test_a_pool_that_keeps_nothing_may_have_a_connection_for_each_tenant(
    store, engine, elsewhere, given
) -> None:
    TENANT.set("public")

    def options() -> str:
        return f"-csearch_path={TENANT.get()}"

    def make() -> Any:
        assert engine.dialect.dbapi is not None
        arguments = engine.dialect.create_connect_args(engine.url)[1]
        return engine.dialect.dbapi.connect(**arguments, options=options())

    more = {"creator": make} if given == "creator" else {}
    other = sa.create_engine(engine.url, poolclass=NullPool, **more)
    if given == "do_connect":
        sa.event.listen(other, given, lambda d, r, a, named: named.update(options=options()))
    elif given == "connect":

        def leads(raw: Any, record: Any) -> None:
            raw.execute(f"SET search_path = {TENANT.get()}")
            raw.commit()

        sa.event.listen(other, given, leads)
    sessions = sessionmaker(other, class_=GuardedSession)
    plugin = BloomPlugin(store, User.metadata)
    plugin.listen(other, sessions)
    plugin.build(other)
    TENANT.set(elsewhere)
    with sessions() as session:
        assert session.get(User, 777) is not None
    plugin.unlisten()


@only_servers
@pytest.mark.parametrize("event", ["checkout", "before_cursor_execute", "before_execute"])
def test_a_guard_with_a_schema_knows_what_a_tenant_writes(
    store, engine, kind, elsewhere, event
) -> None:
    def leads(given: Any, *rest: Any) -> None:
        raw = given if event == "checkout" else given.connection
        raw.cursor().execute(
            "SET search_path = elsewhere, public" if kind == "postgresql" else "USE elsewhere"
        )
        if event == "checkout":
            raw.commit()

    plugin = BloomPlugin(store, Own.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    sa.event.listen(engine, event, leads)
    with Session(engine) as session:
        session.add(User(id=780))
        session.commit()
    assert plugin.probe(Placed.id, 780) is not Answer.ABSENT
    plugin.unlisten()
    engine.dispose()


@only_postgresql
def test_settings_that_are_the_same_are_answered_again(plugin, engine, sessions, sent) -> None:
    with sessions() as session:
        session.execute(text("SET search_path TO public"))
        sent()
        assert session.get(User, 10**6) is None
        assert sent() == 0
        session.commit()
        assert session.get(User, 10**6) is None
        assert sent() == 1  # nobody knows which connection of the pool it would have been
        assert session.get(User, 10**6) is None
        session.commit()
        assert session.get(User, 10**6) is None
        assert sent() == 0


@only_postgresql
def test_a_rollback_brings_settings_back(plugin, engine, sessions, elsewhere) -> None:
    with sessions() as session:
        session.execute(text("SET search_path TO elsewhere"))
        session.commit()
        session.execute(text("SET search_path TO public"))
        assert session.get(User, 777) is None
        session.rollback()
        session.execute(text("SELECT 1"))
        assert asked(session, 777) == (True, True)
        with session.begin_nested() as savepoint:
            session.execute(text("SET search_path TO public"))
            assert session.get(User, 777) is None or 777 in session.identity_map
            savepoint.rollback()
        session.expunge_all()
        assert asked(session, 777) == (True, True)


@only_mariadb
def test_values_that_may_be_clipped_are_fenced(plugin, engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET sql_mode = ''"))
        connection.execute(sa.insert(User).values(id=1, email="x" * 70))
    assert plugin.probe(User.email, "x" * 60) is not Answer.ABSENT


def test_text_that_leaves_settings_alone_fences_nothing(plugin, engine, sessions) -> None:
    with sessions() as session:
        session.execute(text("SELECT count(*), lower(email) FROM users GROUP BY email"))
        session.add(User(id=3, email="3@x"))
        session.commit()
    assert plugin.probe(User.id, 4) is Answer.ABSENT
    assert every_row_is_known(plugin, engine) == 2


def test_a_build_changes_no_connection(plugin, engine) -> None:
    plugin.build(engine, force=True)
    plugin.rebuild(engine)
    with engine.connect() as connection:
        assert CHANGED not in connection.info
    assert not plugin._guards.settings.have_changed_on(engine)


@only_postgresql
def test_a_probe_respects_the_settings_of_its_connection(plugin, engine, elsewhere) -> None:
    with engine.connect() as connection:
        assert plugin.probe(User.id, 777, connection=connection) is Answer.ABSENT
        connection.execute(text("SET search_path TO elsewhere"))
        assert plugin.probe(User.id, 777, connection=connection) == Answer.UNKNOWN
        assert plugin.partition(User.id, [777], connection=connection) == ([], [777])
        connection.rollback()
        assert plugin.probe(User.id, 777, connection=connection) is Answer.ABSENT
        assert plugin.partition(User.id, [777], connection=connection) == ([777], [])
        mapped = connection.execution_options(schema_translate_map={None: "elsewhere"})
        assert plugin.probe(User.id, 777, connection=mapped) == Answer.UNKNOWN


def test_a_probe_needs_a_connection_that_is_listened_to(plugin, engine) -> None:
    other = sa.create_engine(engine.url)
    with other.connect() as connection:
        assert plugin.probe(User.id, 777, connection=connection) == Answer.UNKNOWN
    other.dispose()


@only_postgresql
@pytest.mark.parametrize("asks_before", [False, True])
def test_a_detached_connection_is_not_answered(
    plugin, engine, sessions, elsewhere, asks_before
) -> None:
    with sessions() as session:
        connection = session.connection()
        if asks_before:
            assert asked(session, 777) == (False, False)
        connection.detach()
        connection.exec_driver_sql("SET search_path = elsewhere, public")
        assert asked(session, 777) == (True, True)
