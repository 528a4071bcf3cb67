"""Writes whose keys were once lost, or that a guard once stopped."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import aliased
from sqlalchemy.pool import StaticPool

import bloomstore
from bloomstore.errors import StoreLocked
from bloomstore.sql import Answer, BloomPlugin, Guard
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.kinds import only_postgresql
from tests.sql.support.models import Base, Member, Team, User
from tests.sql.support.tables import built, run, table_of


def test_rows_that_a_commit_listener_writes_have_their_keys(plugin, engine) -> None:
    def write(connection: sa.Connection) -> None:
        if not connection.info.pop("again", False):
            connection.info["again"] = True
            connection.execute(sa.insert(Team).values(id=321))

    sa.event.listen(engine, "commit", write)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(email="outbox@x"))
    sa.event.remove(engine, "commit", write)
    assert plugin.probe(Team.id, 321) is Answer.MAYBE
    every_row_is_known(plugin, engine)


def test_two_phase_without_prepare(plugin, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("two-phase commit is tested on PostgreSQL")
    connection = engine.connect()
    transaction = connection.begin_twophase()
    connection.execute(sa.insert(Team).values(id=77))
    transaction.commit()
    connection.close()
    assert plugin.probe(Team.id, 77) is Answer.MAYBE


def test_a_failed_statement_in_a_savepoint_raises_no_fence(plugin, engine, sessions) -> None:
    with sessions.begin() as session:
        session.add(User(email="twice@x"))
        session.flush()
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            session.execute(sa.insert(User.__table__).values(email="twice@x"))
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
    every_row_is_known(plugin, engine)


def test_a_statement_that_translates_its_schema_is_captured(plugin, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("schemas are tested on PostgreSQL")
    other = sa.Table(
        "teams",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("label", sa.Uuid, default=sa.func.gen_random_uuid()),
        schema="tenant",
    )
    statement = sa.insert(other).values(id=9)
    with engine.begin() as connection:
        options = {"schema_translate_map": {"tenant": "public"}}
        connection.execute(statement, execution_options=options)
    assert plugin.probe(Team.id, 9) is not Answer.ABSENT


def test_an_upsert_names_columns_by_their_keys(store, engine, kind) -> None:
    if kind == "mariadb":
        pytest.skip("it has ON DUPLICATE KEY")
    from sqlalchemy.dialects import postgresql, sqlite

    table = sa.Table(
        "trapped",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String(20), key="mail", info={"bloomstore": Guard()}),
    )
    plugin = built(store, engine, table.metadata)
    made = (sqlite if kind == "sqlite" else postgresql).insert(table)
    with engine.begin() as connection:
        connection.execute(made.values(id=1, mail="first"))
        made = made.values(id=1, mail="first")
        connection.execute(
            made.on_conflict_do_update(index_elements=["id"], set_={"mail": "second"})
        )
    assert plugin.probe(table.c.mail, "second") is not Answer.ABSENT
    plugin.unlisten()


def test_a_pool_of_one_connection_loses_nothing(store) -> None:
    engine = sa.create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    Base.metadata.create_all(engine)
    plugin = BloomPlugin(store)  # guards are found on the tables of the statements
    plugin.listen(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(Team).values(id=1))
        connection.execute(sa.insert(Member).values(team_id=1, name="a"))
    plugin.build(engine)
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(Team)) == 1
        connection.execute(sa.insert(Team).values(id=2))
        with engine.connect() as second:
            second.execute(sa.insert(Team).values(id=3))
            connection.commit()
    assert every_row_is_known(plugin, engine) == 6
    plugin.unlisten()
    engine.dispose()


def test_a_closed_store_does_not_stop_the_application(store, engine, tmp_path) -> None:
    with bloomstore.open(tmp_path / "closing") as closing:
        plugin = BloomPlugin(closing, Base.metadata)
        plugin.listen(engine)
        plugin.build(engine)
    engine.dispose()
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(User)) == 0
    assert plugin.probe(User.email, "a@x") == Answer.UNKNOWN
    plugin.unlisten()


def test_one_more_connection_does_not_fence_what_other_threads_write(plugin, engine) -> None:
    """Facts that are known already change nothing: not even for a moment."""
    guard = plugin.guards["users.id"]
    seen = []
    real = type(guard)._judge

    def judge(*given: Any) -> Any:
        seen.append(1)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(guard), "_judge", judge)
        engine.dispose()
        with engine.connect() as connection:
            connection.execute(select(User.id)).all()
    assert not seen
    assert not guard.why_unknown()


def test_keys_that_cannot_be_read_fence_the_guard_and_not_the_program(
    plugin, engine, monkeypatch
) -> None:
    def broken(*rest: Any) -> set[Any]:
        raise RuntimeError("a driver of tomorrow")

    monkeypatch.setattr("bloomstore.sql.capture.pending.keys_of", broken)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=77, email="x@y"))
    monkeypatch.undo()
    assert plugin.probe(User.id, 77) is not Answer.ABSENT
    assert "could not be read" in plugin.guards["users.id"].why_unknown()


def test_a_writer_that_does_not_know_the_form_being_built_fences(store, engine) -> None:
    """Its connections are older than an ALTER: the keys it would add are of another form."""
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    guard = plugin.guards["trapped.c"]
    note = guard.fresh_record()
    note.building = {**guard.form(), "canon": "another/1"}
    guard.write_record(note)
    assert guard._live is not None
    guard._judge(guard._live)
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    assert any("in doubt" in why for why in store["trapped.c"].fences.values())
    plugin.unlisten()


def test_a_writer_whose_filter_was_replaced_by_a_build_adds_to_the_new_one(store, engine) -> None:
    table = table_of(sa.Integer)
    plugin = built(store, engine, table.metadata)
    guard = plugin.guards["trapped.c"]
    store.drop("trapped.c")
    note = guard.fresh_record()
    note.building = guard.form()
    guard.write_record(note)
    other = store.create("trapped.c", guard.declared.guard.spec, fence="being built")
    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, c=7))
    assert list(other.fences.values()) == ["being built"]
    other.unfence(*other.fences)
    assert 7 in other
    assert 8 not in other
    plugin.unlisten()


@pytest.mark.parametrize("form", ["insert", "update", "harmless"])
def test_a_table_that_is_only_a_name(plugin, engine, form) -> None:
    """sqlalchemy.table() has no types: its keys are not known, but which guards it concerns is."""
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="1@y", age=3))
    light = sa.table("users", sa.column("id"), sa.column("email"), sa.column("age"))
    statements = {
        "insert": sa.insert(light).values(id=2, email="2@y"),
        "update": sa.update(light).where(light.c.id == 1).values({"email": "2@y"}),
        "harmless": sa.update(light).values({light.c.age: 4}),
    }
    with engine.begin() as connection:
        connection.execute(statements[form])
    is_fenced = form != "harmless"
    assert (plugin.probe(User.email, "2@y").name == "UNKNOWN") is is_fenced
    every_row_is_known(plugin, engine)


def aliased_users() -> Any:
    return User.__table__.alias()


FORMS: dict[str, Any] = {
    "alias of a class": lambda: sa.update(A := aliased(User)).values({A.email: A.email + "x"}),
    "alias of a table": lambda: sa.update(a := aliased_users()).values(
        {a.c.email: a.c.email + "x"}
    ),
    "ordered": lambda: sa.update(a := aliased_users()).ordered_values(
        (a.c.age, 1), (a.c.email, a.c.email + "x")
    ),
    "column()": lambda: sa.update(User.__table__).values({sa.column("email"): User.email + "x"}),
    "insert of column()": lambda: sa.insert(User.__table__).values(
        {sa.column("id"): 9, sa.column("email"): sa.func.lower("1@YX")}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_may_be_named_by_another_object(plugin, engine, form) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=1, email="1@y", age=3))
    with engine.begin() as connection:
        connection.execute(FORMS[form]())
    every_row_is_known(plugin, engine)


@pytest.mark.parametrize("form", ["session", "core", "text"])
def test_the_release_of_a_savepoint_may_be_the_commit(plugin, engine, sessions, form) -> None:
    """The driver of SQLite sends no BEGIN before a SAVEPOINT."""
    row = {"id": 31, "email": "31@y"}
    if form == "session":
        with sessions() as session:
            inner = session.begin_nested()
            session.add(User(**row))
            session.flush()
            inner.commit()
            every_row_is_known(plugin, engine)
            session.rollback()
    else:
        with engine.connect() as connection:
            if form == "core":
                with connection.begin_nested():
                    connection.execute(sa.insert(User).values(row))
            else:
                connection.execute(sa.text("SAVEPOINT a"))
                connection.execute(sa.insert(User).values(row))
                connection.execute(sa.text("RELEASE SAVEPOINT a"))
            every_row_is_known(plugin, engine)
            connection.rollback()
    every_row_is_known(plugin, engine)


def test_a_sequence_is_asked_before_its_row_is_sent(store, engine, kind) -> None:
    if kind != "postgresql":
        pytest.skip("sequences are tested on PostgreSQL")
    table = sa.Table(
        "numbered",
        sa.MetaData(),
        sa.Column("id", sa.Integer, sa.Sequence("numbers"), primary_key=True,
                  info={"bloomstore": Guard()}),
        sa.Column("c", sa.Integer),
        implicit_returning=False,
    )  # fmt: skip
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values())
        connection.execute(sa.insert(table).values(id=40))
        connection.execute(sa.insert(table), [{"id": 50}, {"id": 51}])
    assert every_row_is_known(plugin, engine) == 4
    assert plugin.probe(table.c.id, 99) is Answer.ABSENT
    plugin.unlisten()
    table.metadata.drop_all(engine)


def test_a_row_that_was_sent_counts_though_its_statement_failed_afterwards(plugin, engine) -> None:
    def fails(*rest: object) -> None:
        raise RuntimeError("a listener that fails")

    with engine.connect() as connection:
        sa.event.listen(connection, "after_cursor_execute", fails)
        with pytest.raises(RuntimeError, match="a listener"):
            connection.execute(sa.insert(User).values(email="sent@x"))
        sa.event.remove(connection, "after_cursor_execute", fails)
        connection.commit()
    assert every_row_is_known(plugin, engine) == 2


def test_rows_before_the_one_that_failed_count(plugin, engine, kind) -> None:
    if kind == "postgresql":
        pytest.skip("it takes the whole transaction back")
    with engine.connect() as connection:
        rows = [{"email": "1@x"}, {"email": "2@x"}, {"email": "1@x"}]
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(sa.insert(User), rows)
        connection.commit()
    assert every_row_is_known(plugin, engine) == (4 if kind == "sqlite" else 0)


def test_a_pool_may_commit_what_the_garbage_collector_gives_back(store, engine) -> None:
    other = sa.create_engine(engine.url, pool_reset_on_return="commit")
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(other)
    plugin.build(other)
    connection = other.connect()
    connection.execute(sa.insert(User).values(id=1, email="left@y"))
    del connection
    gc.collect()
    assert every_row_is_known(plugin, engine) == 2
    plugin.unlisten()
    other.dispose()


def test_the_database_may_number_rows_whatever_is_declared(store, engine, kind) -> None:
    numbered = {
        "sqlite": "INTEGER PRIMARY KEY",
        "postgresql": "integer GENERATED BY DEFAULT AS IDENTITY",
        "mariadb": "INTEGER AUTO_INCREMENT UNIQUE",
    }
    unique = "UNIQUE" if kind == "sqlite" else "PRIMARY KEY"
    run(engine, f"CREATE TABLE numbered (n {numbered[kind]}, name VARCHAR(20) {unique})")
    table = sa.Table(
        "numbered",
        sa.MetaData(),
        sa.Column("n", sa.Integer, info={"bloomstore": Guard()}),
        sa.Column("name", sa.String(20), primary_key=True),
    )
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(name="a"))
    every_row_is_known(plugin, engine)
    plugin.unlisten()


@pytest.mark.parametrize("form", ["one", "many", "returning"])
@pytest.mark.parametrize("change", ["values", "text", "comment"])
def test_a_listener_may_change_what_is_sent(plugin, engine, kind, form, change) -> None:
    def changed(_: Any, __: Any, statement: str, given: Any, *rest: Any) -> tuple[str, Any]:
        if not statement.startswith("INSERT INTO users"):
            return statement, given
        if change == "values":
            given = [swapped(row) for row in given] if form == "many" else swapped(given)
        elif change == "text":
            statement = (
                statement.replace("users", "users /* */", 1)
                if form != "one"
                else ("INSERT INTO users (id, email) VALUES (3, '3@y')")
            )
            given = given if form != "one" else type(given)()
        return statement + (" /* traced */" if change == "comment" else ""), given

    def swapped(row: Any) -> Any:
        if isinstance(row, dict):
            return {
                name: "swapped" + value if "@" in str(value) else value
                for name, value in row.items()
            }
        return tuple("swapped" + value if "@" in str(value) else value for value in row)

    sa.event.listen(engine, "before_cursor_execute", changed, retval=True)
    rows = [{"id": 1, "email": "1@y"}, {"id": 2, "email": "2@y"}]
    insert = sa.insert(User.__table__)
    with engine.begin() as connection:
        if form == "one":
            connection.execute(insert, rows[0])
        elif form == "many":
            connection.execute(insert, rows)
        else:
            connection.execute(insert.returning(User.id), rows).all()
    sa.event.remove(engine, "before_cursor_execute", changed)
    assert every_row_is_known(plugin, engine) == (2 if form == "one" else 4)
    if change == "comment":
        assert plugin.probe(User.email, "nobody@y") is Answer.ABSENT


def test_a_commit_inside_a_batch_of_the_store_does_not_wait_for_its_end(
    plugin, store, engine, sessions
) -> None:
    mine = store.create("mine", bloomstore.Scalable(target_error=0.001))
    with store.batch():
        mine.add("something")
        with sessions.begin() as session:
            session.add(User(id=1, email="a@x"))
        with engine.begin() as connection:  # keys that cannot be known: a fence
            connection.execute(sa.update(User).values(email=sa.func.lower(User.email)))
        with ThreadPoolExecutor() as elsewhere:
            assert elsewhere.submit(plugin.probe, User.id, 1).result() is Answer.MAYBE
            assert elsewhere.submit(plugin.probe, User.email, "b@x").result() == Answer.UNKNOWN
            assert not elsewhere.submit(mine.__contains__, "something").result()
    assert "something" in mine


@only_postgresql
def test_a_guard_that_cannot_be_fenced_does_not_hide_the_others(store, engine, monkeypatch) -> None:
    table = sa.Table(
        "twins",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.Text, info={"bloomstore": Guard()}) for name in ("x", "y")),
    )
    plugin = built(store, engine, table.metadata)
    with engine.begin() as connection:
        connection.execute(sa.insert(table).values(id=1, x="a", y="a"))
    raw = engine.raw_connection()  # nobody sees it
    raw.cursor().execute("ALTER TABLE twins ALTER x TYPE char(5), ALTER y TYPE char(5)")
    raw.commit()
    raw.close()
    engine.dispose()

    def locked(*given: Any, **named: Any) -> None:
        raise StoreLocked("another process has it")

    with monkeypatch.context() as patched:
        patched.setattr(bloomstore.Filter, "fence", locked)
        with engine.connect() as connection:
            assert connection.scalar(select(table.c.id).where(table.c.y == "a  ")) == 1
        for column in (table.c.x, table.c.y):
            assert plugin.probe(column, "a  ") == Answer.UNKNOWN
    for column in (table.c.x, table.c.y):  # now the others are told, too
        assert plugin.probe(column, "a  ") == Answer.UNKNOWN
        assert not store[f"twins.{column.name}"].state.is_sound
    plugin.unlisten()


def test_what_the_collector_gives_back_in_the_middle_of_an_add_is_not_committed(
    store, engine
) -> None:
    other = sa.create_engine(engine.url, pool_reset_on_return="commit")
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(other)
    plugin.build(other)
    connection = other.connect()
    connection.execute(sa.insert(User).values(id=1, email="left@y"))
    with store._core.hold():
        del connection
        gc.collect()
    with engine.connect() as connection:
        assert connection.scalar(select(sa.func.count()).select_from(User)) == 0
    plugin.unlisten()
    other.dispose()
