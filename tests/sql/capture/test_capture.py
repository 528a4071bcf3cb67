"""Every write form, however its transaction ends: no committed row without its key."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import insert, select
from sqlalchemy.orm import Session, sessionmaker

from bloomstore.sql import Answer, BloomPlugin, Guard, Guarded, GuardedSession
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.forms import FORMS, Form
from tests.sql.support.models import Base, Member, Team, User


def some_rows(sessions) -> None:
    """Rows to change; those of an earlier part of the test are gone."""
    with sessions.begin() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(sa.delete(table))
        session.add_all([User(email="old@x"), User(email="older@x"), Team(id=1)])
        session.add(Member(team_id=9, name="old"))


@pytest.fixture
def begun(plugin: BloomPlugin, sessions) -> BloomPlugin:
    some_rows(sessions)
    return plugin


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request: pytest.FixtureRequest, kind: str) -> Form:
    if kind not in request.param.kinds:
        pytest.skip(f"{kind} has no such form")
    found: Form = request.param
    return found


def is_fenced(plugin: BloomPlugin) -> bool:
    return any(guard.why_unknown() for guard in plugin.guards.values())


def test_no_row_is_without_its_key_however_the_transaction_ends(
    plugin: BloomPlugin, engine, sessions, form: Form
) -> None:
    some_rows(sessions)
    with sessions() as session:
        form.write(session)
        session.rollback()
    every_row_is_known(plugin, engine)
    assert not is_fenced(plugin)

    with sessions.begin() as session:
        form.write(session)
    assert every_row_is_known(plugin, engine) > 0
    assert is_fenced(plugin) is not form.knows
    if not form.knows:
        plugin.build(engine)
        every_row_is_known(plugin, engine)
    assert not is_fenced(plugin)

    some_rows(sessions)
    with sessions.begin() as session, session.begin_nested():
        form.write(session)
    every_row_is_known(plugin, engine)
    if is_fenced(plugin):
        plugin.build(engine)

    some_rows(sessions)
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        form.write(session)
        every_row_is_known(plugin, engine)


def test_two_phase(begun: BloomPlugin, engine, kind: str) -> None:
    if kind != "postgresql":
        pytest.skip("two-phase commit is tested on PostgreSQL")
    connection = engine.connect()
    transaction = connection.begin_twophase()
    connection.execute(insert(User).values(email="prepared@x"))
    connection.execute(insert(Team), [{"id": 50}, {"id": 51}])
    assert begun.probe(User.email, "prepared@x") is Answer.ABSENT
    transaction.prepare()
    assert begun.probe(User.email, "prepared@x") is Answer.MAYBE
    transaction.commit()
    connection.close()
    every_row_is_known(begun, engine)


def test_a_raw_commit_is_seen(begun: BloomPlugin, engine, kind: str) -> None:
    with engine.connect() as connection:
        connection.execute(insert(User).values(email="raw@x"))
        connection.exec_driver_sql("COMMIT")
        assert begun.probe(User.email, "raw@x") is Answer.MAYBE


def test_an_error_in_the_durable_step_takes_the_transaction_with_it(
    begun: BloomPlugin, engine, sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = begun.guards["users.email"]

    def fails(keys: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(guard.filter, "add_many", fails)
        with pytest.raises(OSError, match="no space"), sessions() as session:
            session.add(User(email="leak@x"))
            session.commit()
        with pytest.raises(OSError, match="no space"), engine.connect() as connection:
            connection.execute(insert(User).values(email="leak2@x"))
            connection.commit()
    with sessions.begin() as session:  # the next user of the pooled connection publishes nothing
        session.add(User(email="fine@x"))
    with engine.connect() as connection:
        found = set(connection.scalars(select(User.email)))
    assert not found & {"leak@x", "leak2@x"}
    assert "fine@x" in found
    every_row_is_known(begun, engine)


def test_connections_return_clean(begun: BloomPlugin, engine) -> None:
    for _ in range(3):
        connection = engine.connect()
        connection.execute(insert(User).values(email="forgotten@x"))
        connection.close()
    with engine.connect() as connection:
        assert not [name for name in connection.info if "bloomstore" in str(name)]
        assert begun.probe(User.email, "forgotten@x", connection=connection) is Answer.ABSENT


def test_unlistening_leaves_no_trace(store, engine, sessions) -> None:
    def traces() -> object:
        return (
            sorted(name for name in vars(engine.dialect) if name.startswith("do_")),
            len(engine.pool.dispatch.reset),
            len(engine.pool.dispatch.connect),
            sa.event.contains(sessions, "after_begin", plugin._asker.after_begin),
            dict(sessions.kw),
        )

    plugin = BloomPlugin(store, Base.metadata)
    before = traces()
    plugin.listen(engine, sessions)
    assert traces() != before
    plugin.unlisten()
    assert traces() == before


def test_deletes_are_counted(begun: BloomPlugin, engine, sessions) -> None:
    with sessions.begin() as session:
        session.execute(sa.delete(User))
    assert begun.stats()["users.email"]["deleted_since"] == 2
    begun.unlisten()
    begun.listen(engine)
    stats = begun.stats()["users.email"]
    assert (stats["deleted_since"], stats["keys"], stats["stale"]) == (2, 2, 1.0)


def test_a_translated_schema_is_followed(begun: BloomPlugin, engine, kind: str) -> None:
    if kind != "postgresql":
        pytest.skip("schemas are tested on PostgreSQL")
    other = sa.Table(
        "users",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String(60)),
        schema="tenant",
    )
    with engine.begin() as connection:
        connection = connection.execution_options(schema_translate_map={"tenant": "public"})
        connection.execute(insert(other).values(id=321, email="tenant@x"))
    assert begun.probe(User.email, "tenant@x") is Answer.MAYBE
    every_row_is_known(begun, engine)


OWN_SCHEMA = {"sqlite": "main", "postgresql": "public", "mariadb": "bloom"}


@pytest.mark.parametrize("spelling", ["dotted", "quoted", "placed", "by a map", "as a name"])
def test_a_table_by_another_spelling_is_the_same_table(begun, engine, kind, spelling) -> None:
    """With quote=False SQLAlchemy renders a name as it is; SQLite knows no case in any name."""
    own = OWN_SCHEMA[kind]
    shout = own if kind == "mariadb" else own.upper()
    plain = engine.dialect.identifier_preparer.quote_identifier
    columns: list[sa.Column[Any]] = [
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String(60)),
    ]
    name, options = "users", {}
    schema: str | None = None
    if spelling in ("dotted", "as a name"):
        name = sa.quoted_name(f"{own}.users", False)
    elif spelling == "quoted":
        name = sa.quoted_name(plain("users"), False)
    elif spelling == "placed":
        schema = sa.quoted_name(shout, None if kind == "sqlite" else False)
    else:
        schema, options = "x", {"x": sa.quoted_name(shout, None if kind == "sqlite" else False)}
    table: sa.TableClause = sa.Table(name, sa.MetaData(), *columns, schema=schema)
    if spelling == "as a name":
        table = sa.table(name, sa.column("id"), sa.column("email"))
    with engine.connect().execution_options(schema_translate_map=options) as connection:
        connection.execute(insert(table).values(id=321, email="spelled@x"))
        connection.commit()
    assert begun.probe(User.email, "spelled@x") is not Answer.ABSENT
    every_row_is_known(begun, engine)


def test_schemas_of_sqlite_have_no_case(store, tmp_path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/cased.db")
    guarded = sa.Table(
        "users",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, info={"bloomstore": Guard()}),
        schema="MAIN",
    )
    guarded.create(engine)
    plugin = BloomPlugin(store, guarded.metadata)
    plugin.listen(engine)
    plugin.build(engine)
    for number, schema in enumerate((None, "main", "Main")):
        other = sa.Table("USERS", sa.MetaData(), sa.Column("id", sa.Integer), schema=schema)
        with engine.begin() as connection:
            connection.execute(insert(other).values(id=number))
        assert plugin.probe(guarded.c.id, number) is not Answer.ABSENT
    plugin.unlisten()
    engine.dispose()


def test_a_name_without_its_quotes_may_be_another_table(store, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("only PostgreSQL makes small letters of what has no quotes")
    guarded, asked = (
        sa.Table(
            sa.quoted_name("Users", quote),
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True, info=info),
        )
        for quote, info in ((None, {"bloomstore": Guard()}), (False, {}))
    )
    guarded.create(engine)
    sessions = sessionmaker(engine, class_=GuardedSession)
    plugin = BloomPlugin(store, guarded.metadata)
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with engine.begin() as connection:
        connection.execute(insert(asked).values(id=5))
    plugin.rebuild(engine)  # spare keys do no harm, and none of them is left
    with sessions() as session:
        question = select(asked.c.id).where(asked.c.id == 5).options(Guarded())
        assert session.scalars(question).all() == [5]
    plugin.unlisten()
