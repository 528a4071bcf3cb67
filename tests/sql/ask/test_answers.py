"""What sessions are answered, and when no SQL is sent."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import func, select
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session, joinedload, sessionmaker

from bloomstore.errors import SpecError
from bloomstore.sql import Answer, BloomPlugin, Guarded, GuardedSession
from tests.sql.guards.test_foreign_listeners import lowers_binds, lowers_parameters
from tests.sql.support.models import Base, Member, Team, User


@pytest.fixture
def filled(plugin: BloomPlugin, sessions) -> BloomPlugin:
    with sessions.begin() as session:
        session.add(Team(id=7))
        session.flush()
        session.add_all([User(id=n, email=f"u{n}@x", team_id=7) for n in range(1, 21)])
        session.add(Member(team_id=7, name="ann"))
    return plugin


def test_probe_says_absent_only_for_what_is_absent(filled: BloomPlugin) -> None:
    assert filled.probe(User.email, "u3@x") is Answer.MAYBE
    assert filled.probe(User.email, "nobody@x") is Answer.ABSENT
    assert filled.probe(User.id, 3) is Answer.MAYBE
    assert filled.probe(User.id, 12345) is Answer.ABSENT
    assert filled.probe((Member.team_id, Member.name), (7, "ann")) is Answer.MAYBE
    assert filled.probe((Member.team_id, Member.name), (8, "ann")) is Answer.ABSENT
    assert filled.probe(User.email, None) == Answer.UNKNOWN


def test_partition_keeps_the_order(filled: BloomPlugin) -> None:
    values = ["zz@x", "u1@x", "yy@x", "u2@x"]
    assert filled.partition(User.email, values) == (["zz@x", "yy@x"], ["u1@x", "u2@x"])


def test_a_column_without_a_guard_is_named(filled: BloomPlugin) -> None:
    with pytest.raises(SpecError, match=r"users\.age"):
        filled.probe(User.age, 3)


def test_an_answer_is_not_a_truth_value(filled: BloomPlugin) -> None:
    with pytest.raises(TypeError, match="compare"):
        bool(filled.probe(User.id, 3))


def test_get_of_an_absent_key_sends_nothing(filled: BloomPlugin, sessions, sent) -> None:
    with sessions() as session:
        sent()
        assert session.get(User, 999_999) is None
        with pytest.raises(NoResultFound):
            session.get_one(User, 999_998)
        assert session.get(Member, (7, "bob")) is None
        assert sent() == 0
        assert session.get(User, 3).email == "u3@x"
        assert session.get(Member, (7, "ann")) is not None
        assert sent() == 2


@pytest.mark.parametrize("kept", [GuardedSession, Session])
def test_guarded_option_sends_nothing_when_absent(
    filled: BloomPlugin, engine, sent, kept: type[Session]
) -> None:
    sessions = sessionmaker(engine, class_=kept)
    filled.listen(sessions)
    with sessions() as session:
        sent()
        absent = select(User).where(User.email == "zz@x").options(Guarded())
        assert session.scalars(absent).all() == []
        assert session.execute(absent).first() is None
        assert session.scalars(absent.where(User.age > 3)).unique().one_or_none() is None
        both = select(Member).where(Member.name == "ann", Member.team_id == 9).options(Guarded())
        assert session.scalars(both).all() == []
        columns = select(User.id, User.email).where(User.email == "zz@x").options(Guarded())
        assert list(session.execute(columns).keys()) == ["id", "email"]
        assert sent() == 0
        present = select(User).where(User.email == "u3@x").options(Guarded())
        assert session.scalars(present).one().id == 3
        assert sent() == 1


def test_without_the_option_every_query_is_sent(filled: BloomPlugin, sessions, sent) -> None:
    with sessions() as session:
        sent()
        assert session.scalars(select(User).where(User.email == "zz@x")).all() == []
        assert sent() == 1


@pytest.mark.parametrize("kept", [GuardedSession, Session])
def test_in_lists_are_pruned(filled: BloomPlugin, engine, sent, kept: type[Session]) -> None:
    sessions = sessionmaker(engine, class_=kept)
    filled.listen(sessions)
    wanted = ["u5@x", *[f"no{n}@x" for n in range(50)], "u9@x"]
    with sessions() as session:
        sent()
        query = select(User).where(User.email.in_(wanted)).order_by(User.id).options(Guarded())
        assert [user.id for user in session.scalars(query)] == [5, 9]
        ((statement),) = sent.statements
        assert statement.count("no") == 0
        sent()
        nothing = select(User).where(User.id.in_([10**6, 10**6 + 1])).options(Guarded())
        assert session.scalars(nothing).all() == []
        assert sent() == 0
        query = select(User).where(User.email.in_(sa.bindparam("some", expanding=True)))
        query = query.where(User.id > 0).order_by(User.id).options(Guarded())
        for _ in range(2):
            assert [user.id for user in session.scalars(query, {"some": wanted})] == [5, 9]
        assert len(sent.statements) == 2
        assert max(map(len, sent.statements)) < 500
        # The same statement again, with other values: nothing of the first is remembered.
        again = select(User).where(User.email.in_(["u1@x", "no1@x"])).options(Guarded())
        assert [user.id for user in session.scalars(again)] == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: select(func.count()).select_from(User).where(User.email == "zz@x"),
        lambda: select(func.max(User.id)).where(User.email == "zz@x"),
        lambda: select(User).where(sa.or_(User.email == "zz@x", User.id == 1)),
        lambda: select(User).where(~(User.email == "zz@x")),
        lambda: select(User).where(User.email != "zz@x"),
        lambda: select(User).where(func.lower(User.email) == "zz@x"),
        lambda: select(User).where(User.email == "zz@x").with_for_update(),
        lambda: select(User.id).where(User.email == "zz@x").union(select(User.id)),
        lambda: select(sa.exists().where(User.email == "zz@x")),
        lambda: select(User).where(User.email.is_(None)),
        lambda: select(User).where(User.email.not_in(["zz@x"])),
    ],
)
def test_other_shapes_are_left_alone(filled: BloomPlugin, sessions, sent, make) -> None:
    with sessions() as session:
        sent()
        session.execute(make().options(Guarded()) if hasattr(make(), "options") else make()).all()
        assert sent() == 1


def test_outer_joined_and_eager_loaded_are_answered(filled: BloomPlugin, sessions, sent) -> None:
    with sessions() as session:
        sent()
        query = select(Team, User).outerjoin(User, User.team_id == Team.id)
        assert session.execute(query.where(User.email == "zz@x").options(Guarded())).all() == []
        eager = select(User).where(User.id == 4711).options(joinedload(User.team), Guarded())
        assert session.scalars(eager).unique().all() == []
        assert sent() == 0


def test_replaced_parameters_are_left_alone(filled: BloomPlugin, sessions) -> None:
    query = select(User).where(User.email == "zz@x").options(Guarded())
    named = select(User).where(User.email == sa.bindparam("wanted")).options(Guarded())
    with sessions() as session:
        assert session.scalars(query, {"email_1": "u3@x"}).one().id == 3
        assert session.scalars(named, {"wanted": "u3@x"}).one().id == 3
        assert session.scalars(named, {"wanted": "zz@x"}).all() == []


def test_a_transaction_sees_its_own_rows(filled: BloomPlugin, sessions) -> None:
    query = select(User).where(User.email == "own@x").options(Guarded())
    with sessions() as session:
        assert session.scalars(query).all() == []
        user = User(id=500, email="own@x")
        session.add(user)
        assert session.scalars(query).one() is user  # flushed by the question itself
        number = user.id
        session.expunge(user)
        assert session.get(User, number).email == "own@x"
        assert filled.probe(User.email, "own@x") is Answer.ABSENT  # for everybody else
        assert filled.probe(User.email, "own@x", connection=session.connection()) is Answer.MAYBE
        session.rollback()
        assert session.scalars(query).all() == []


def test_unflushed_rows_are_found(filled: BloomPlugin, sessions) -> None:
    with sessions() as session:
        session.add(Team(id=99))
        assert session.get(Team, 99) is not None
        session.add(Team(id=98))
        session.flush()
        session.get(Team, 98).id = 100
        assert session.get(Team, 100) is not None


def test_bypass_sends_every_query(filled: BloomPlugin, sessions, sent) -> None:
    with sessions() as session:
        sent()
        with filled.bypass(session):
            assert session.get(User, 999_999) is None
        assert sent() == 1
        assert session.get(User, 999_999) is None
        assert sent() == 0


def test_serializable_reads_are_never_skipped(filled: BloomPlugin, engine, sent, kind) -> None:
    query = select(User).where(User.email == "zz@x").options(Guarded())
    with Session(engine.execution_options(isolation_level="SERIALIZABLE")) as session:
        filled.listen(session)
        session.connection()
        sent()
        session.scalars(query).all()
        assert sent() == (0 if kind == "sqlite" else 1)


def test_a_session_of_another_engine_or_schema_is_not_answered(
    filled: BloomPlugin, engine, sent
) -> None:
    query = select(User).where(User.email == "zz@x").options(Guarded())
    stranger = sa.create_engine(engine.url)
    translated = engine.execution_options(schema_translate_map={"no": "matter"})
    for bind, count in ((stranger, 0), (translated, 1), (engine, 0)):
        sessions = sessionmaker(bind, class_=GuardedSession)
        filled.listen(sessions)
        with sessions() as session:
            sent()
            assert session.scalars(query).all() == []
            assert session.get(User, 10**6) is None
            assert sent() == 2 * count
            assert session.in_transaction() is (bind is not engine)
    stranger.dispose()


def test_text_that_changes_the_level_is_respected(filled: BloomPlugin, engine, sent, kind) -> None:
    if kind != "postgresql":
        pytest.skip("tested on PostgreSQL")
    sessions = sessionmaker(engine, class_=GuardedSession)
    filled.listen(sessions)
    with sessions() as session:
        session.execute(sa.text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        sent()
        assert session.get(User, 10**6) is None
        assert sent() == 1
        session.rollback()
        assert session.get(User, 10**6) is None
        assert sent() == 0
        session.execute(sa.text("SET search_path TO public"))
        session.commit()
        sent()
        assert session.get(User, 10**6) is None
        assert sent() == 1  # nobody knows which connection of the pool it would have been


def test_auto_answers_without_being_asked(store, engine, sessions, sent, kind) -> None:
    plugin = BloomPlugin(store, Base.metadata, policy="auto")
    plugin.listen(engine, sessions)
    plugin.build(engine)
    with sessions() as session:
        session.execute(sa.text("SELECT 1"))
        sent()
        assert session.scalars(select(User).where(User.email == "zz@x")).all() == []
        assert sent() == 0
        session.rollback()
        # A skipped read opens no snapshot: the first statement of a transaction is sent.
        assert session.scalars(select(User).where(User.email == "zz@x")).all() == []
        assert sent() == (0 if kind == "postgresql" else 1)
    plugin.unlisten()


def test_a_skipped_result_has_the_columns_of_a_sent_one(filled, sessions) -> None:
    users: Any = User.__table__
    for query, names in (
        (select(User.id, User.email), (User.email, users.c.email, "email", 1, User)),
        (select(users.c.id, users.c.email), (users.c.email, User.email)),
        (select(User), (User, "User", 0)),
        (select(User, User.email.label("x")), ("x", User, User.email)),
    ):
        for name in names:
            found = []
            for options in ([], [Guarded()]):
                with sessions() as session:
                    result = session.execute(query.where(User.id == 99).options(*options))
                    try:
                        found.append(result.columns(name).scalars().all())
                    except (KeyError, sa.exc.NoSuchColumnError) as error:
                        found.append(type(error))
            assert found[0] == found[1]


def test_only_queries_that_were_not_sent_count_as_saved(plugin, sessions, sent) -> None:
    with sessions.begin() as session:
        session.add_all([User(id=number, email=f"{number}@x") for number in range(1, 40)])

    def saved() -> int:
        return (
            plugin.stats()["users.id"]["queries_saved"]
            + (plugin.stats()["users.email"]["queries_saved"])
        )

    with sessions() as session:
        session.execute(sa.text("SELECT 1"))
        plugin.probe(User.id, 99)
        plugin.partition(User.id, [97, 98, 99])
        assert saved() == 0
        sent()
        assert [session.get(User, number) for number in (97, 98, 99)] == [None] * 3
        of_none = select(User).where(User.email == "none@x").options(Guarded())
        assert session.scalars(of_none).all() == []
        some = select(User.id).where(User.id.in_([1, 98, 99])).options(Guarded())
        assert session.scalars(some).all() == [1]
        assert (saved(), sent()) == (4, 1)
        assert plugin.stats()["users.id"]["seconds_saved"] == 0  # no get was sent yet
        assert session.get(User, 1) is not None
    stats = plugin.stats()["users.id"]
    assert stats["seconds_saved"] > 0
    assert (stats["observed_error"], stats["true_positives"], stats["absent"]) == (0, 1, 9)


def test_a_session_class_must_not_hide_what_another_one_overrides() -> None:
    class Logged(Session):
        def execute(self, *given: Any, **options: Any) -> Any:
            return super().execute(*given, **options)

    class Cached(Session):
        def get(self, *given: Any, **options: Any) -> Any:
            return super().get(*given, **options)

    for bases in [(Logged, GuardedSession), (GuardedSession, Logged)]:
        assert type("Good", bases, {}).execute is Logged.execute  # type: ignore[attr-defined]
    assert type("Good", (Cached, GuardedSession), {}).get is Cached.get  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="Bad: GuardedSession would hide get of Cached"):
        type("Bad", (GuardedSession, Cached), {})


@pytest.mark.parametrize("listener", [lowers_parameters, lowers_binds])
def test_a_listener_may_change_values_where_they_are(plugin, engine, sessions, listener) -> None:
    with Session(engine) as session:
        session.add(User(id=1, email="low@x"))
        session.commit()
    is_of_cursor = listener is lowers_parameters
    sa.event.listen(engine, "before_cursor_execute" if is_of_cursor else "before_execute", listener)

    def question() -> Any:
        return select(User.id).where(User.email == "LOW@X")

    with sessions() as session:
        found = session.scalars(question()).all()
        assert session.scalars(question().options(Guarded())).all() == found
