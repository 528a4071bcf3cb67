"""Every form in which SQLAlchemy can write a row, and whether its keys can be known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import func, insert, literal, select, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from tests.sql.support.models import Member, Team, Ticket, User

Write = Callable[[Session], object]


@dataclass(frozen=True)
class Form:
    """`write` gets a session; `knows` says that no guard needs a fence for it."""

    write: Write
    knows: bool = True
    kinds: tuple[str, ...] = ("sqlite", "postgresql", "mariadb")

    @property
    def name(self) -> str:
        return self.write.__name__


FORMS: list[Form] = []


def form(*, knows: bool = True, kinds: tuple[str, ...] = Form.kinds) -> Callable[[Write], Write]:
    def keep(write: Write) -> Write:
        FORMS.append(Form(write, knows, kinds))
        return write

    return keep


@form()
def add_one(session: Session) -> None:
    session.add(User(email="one@x"))
    session.flush()


@form()
def add_several_with_server_keys(session: Session) -> None:
    session.add_all([User(email=f"several{n}@x") for n in range(5)])
    session.flush()


@form()
def add_with_client_key_and_client_default(session: Session) -> None:
    session.add(Team(id=4711))
    session.flush()


@form()
def add_without_a_key(session: Session) -> None:
    session.add(User(email=None))
    session.flush()


@form(knows=False)
def a_null_key_that_the_server_fills_in(session: Session) -> None:
    table = User.__table__
    given = {} if session.get_bind().dialect.name == "postgresql" else {"id": None}
    email = func.lower("NULLKEY@x") if not given else "nullkey@x"
    session.connection().execute(insert(table).values(email=email, **given))


@form(knows=False, kinds=("mariadb",))
def a_zero_that_the_server_replaces(session: Session) -> None:
    session.connection().execute(insert(User.__table__).values(id=0, email="zero@x"))


@form()
def merge(session: Session) -> None:
    session.merge(Team(id=12))
    session.flush()


@form()
def add_composite(session: Session) -> None:
    session.add_all([Member(team_id=1, name=f"m{n}") for n in range(3)])
    session.flush()


@form()
def change_an_attribute(session: Session) -> None:
    session.scalars(select(User).where(User.email == "old@x")).one().email = "changed@x"
    session.flush()


@form(knows=False)
def change_a_part_of_a_composite_key(session: Session) -> None:
    session.scalars(select(Member).where(Member.name == "old")).one().name = "new"
    session.flush()


@form(knows=False)
def set_an_attribute_to_an_expression(session: Session) -> None:
    user = session.scalars(select(User).where(User.email == "old@x")).one()
    user.email = func.upper("lowered@x")
    session.flush()


@form()
def orm_bulk_insert_with_client_keys(session: Session) -> None:
    session.execute(insert(Team), [{"id": n} for n in range(100, 110)])


@form()
def orm_bulk_insert_with_server_keys(session: Session) -> None:
    session.execute(insert(User), [{"email": f"bulk{n}@x"} for n in range(10)])


@form()
def orm_insert_returning(session: Session) -> None:
    rows = session.scalars(
        insert(User).returning(User), [{"email": f"returned{n}@x"} for n in range(10)]
    ).all()
    assert len(rows) == 10
    assert {row.email for row in rows} == {f"returned{n}@x" for n in range(10)}


@form()
def orm_insert_values_returning_another_column(session: Session) -> None:
    statement = insert(Member).values(team_id=3, name="returning").returning(Member.rank)
    assert session.execute(statement).all() == [(None,)]


@form(knows=False)
def insert_returning_without_the_key(session: Session) -> None:
    assert session.execute(insert(User).values(email="nokey@x").returning(User.email)).all() == [
        ("nokey@x",)
    ]


@form()
def legacy_bulk_save(session: Session) -> None:
    session.bulk_save_objects([Team(id=201), Team(id=202)])


@form()
def legacy_bulk_mappings(session: Session) -> None:
    session.bulk_insert_mappings(sa.inspect(Team), [{"id": 301}, {"id": 302}])


@form()
def core_insert_one(session: Session) -> None:
    session.connection().execute(insert(User.__table__).values(email="core@x"))


@form()
def core_executemany(session: Session) -> None:
    session.connection().execute(
        insert(User.__table__), [{"id": 900 + n, "email": f"core{n}@x"} for n in range(5)]
    )


@form(knows=False)
def core_executemany_with_server_keys(session: Session) -> None:
    session.connection().execute(
        insert(User.__table__), [{"email": f"server{n}@x"} for n in range(5)]
    )


@form()
def core_values_of_several_rows(session: Session) -> None:
    session.connection().execute(
        insert(Member.__table__).values([{"team_id": 5, "name": f"v{n}"} for n in range(5)])
    )


@form(knows=False)
def core_values_of_several_rows_with_server_keys(session: Session) -> None:
    session.connection().execute(
        insert(User.__table__).values([{"email": f"values{n}@x"} for n in range(5)])
    )


@form(knows=False)
def insert_from_select(session: Session) -> None:
    session.execute(insert(Team).from_select(["id", "label"], select(Team.id + 5000, Team.label)))


@form(knows=False)
def insert_an_expression(session: Session) -> None:
    session.execute(insert(User).values(id=77_000, email=func.lower("UPPER@x")))


@form(knows=False)
def insert_an_expression_named_like_the_column(session: Session) -> None:
    session.execute(
        insert(User).values(id=77_001, email=func.lower(sa.bindparam("e"))), {"e": "SHOUT@x"}
    )


@form(kinds=("postgresql", "mariadb"))
def server_default_that_is_not_the_key(session: Session) -> None:
    session.add(Ticket())
    session.flush()


@form(knows=False)
def a_default_that_only_the_database_has(session: Session) -> None:
    bare = sa.Table(
        "tickets",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("code", sa.String(60)),
    )
    session.connection().execute(insert(bare).values(id=56))


@form(knows=False)
def server_default_in_core(session: Session) -> None:
    session.connection().execute(insert(Ticket.__table__).values(id=55))


@form()
def update_by_value(session: Session) -> None:
    session.execute(update(User).where(User.email == "old@x").values(email="updated@x"))


@form()
def update_by_primary_key_in_bulk(session: Session) -> None:
    found = session.scalars(select(User.id).where(User.email == "old@x")).one()
    session.execute(update(User), [{"id": found, "email": "bulkupdated@x"}])


@form()
def update_core_executemany(session: Session) -> None:
    table = User.__table__
    session.connection().execute(
        update(table).where(table.c.email == sa.bindparam("was")),
        [{"was": "old@x", "email": "many1@x"}, {"was": "older@x", "email": "many2@x"}],
    )


@form()
def update_of_another_column(session: Session) -> None:
    session.execute(update(User).values(age=User.age + 1))


@form(knows=False)
def update_by_an_expression(session: Session) -> None:
    session.execute(update(Team).values(id=Team.id + 9000))


@form(knows=False)
def update_by_a_literal_column(session: Session) -> None:
    session.execute(
        update(User).where(User.email == "old@x").values(email=sa.literal_column("'lit@x'"))
    )


@form()
def update_by_a_literal(session: Session) -> None:
    session.execute(update(User).where(User.email == "old@x").values(email=literal("l@x")))


@form(kinds=("sqlite", "postgresql"))
def upsert_do_nothing(session: Session) -> None:
    dialect = session.get_bind().dialect.name
    made = (sqlite if dialect == "sqlite" else postgresql).insert(Team).values(id=1)
    session.execute(made.on_conflict_do_nothing())


@form(kinds=("sqlite", "postgresql"))
def upsert_excluded(session: Session) -> None:
    dialect = session.get_bind().dialect.name
    made = (sqlite if dialect == "sqlite" else postgresql).insert(User)
    made = made.values(id=8800, email="old@x")
    session.execute(
        made.on_conflict_do_update(index_elements=["email"], set_={"email": made.excluded.email})
    )


@form(knows=False, kinds=("sqlite", "postgresql"))
def upsert_sets_the_key(session: Session) -> None:
    dialect = session.get_bind().dialect.name
    made = (sqlite if dialect == "sqlite" else postgresql).insert(User)
    made = made.values(id=8801, email="old@x")
    session.execute(
        made.on_conflict_do_update(index_elements=["email"], set_={"email": "conflict@x"})
    )


@form(knows=False, kinds=("mariadb",))
def duplicate_key_sets_the_key(session: Session) -> None:
    made = mysql.insert(User).values(id=8802, email="old@x")
    session.execute(made.on_duplicate_key_update(email="duplicate@x"))


@form(knows=False, kinds=("mariadb",))
def insert_ignore(session: Session) -> None:
    session.execute(insert(Team).prefix_with("IGNORE").values(id=70_000))


@form(knows=False, kinds=("postgresql",))
def insert_in_a_cte(session: Session) -> None:
    made = insert(Team).values(id=60_000).returning(Team.id).cte("made")
    session.connection().execute(select(made.c.id)).all()


@form(knows=False)
def textual(session: Session) -> None:
    session.execute(text("INSERT INTO users (email) VALUES (:e)"), {"e": "text@x"})


@form(knows=False)
def driver_sql(session: Session) -> None:
    session.connection().exec_driver_sql("INSERT INTO users (email) VALUES ('driver@x')")


@form(knows=False)
def driver_sql_hidden_by_a_comment(session: Session) -> None:
    session.connection().exec_driver_sql(
        "/* SELECT */ -- SELECT\nINSERT INTO users (email) VALUES ('--comment@x')"
    )


@form()
def another_table_object(session: Session) -> None:
    other = sa.Table(
        "USERS" if session.get_bind().dialect.name == "sqlite" else "users",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("email", sa.String(60)),
    )
    session.connection().execute(insert(other).values(id=66_000, email="other@x"))


@form()
def rows_are_deleted(session: Session) -> None:
    session.execute(sa.delete(User).where(User.email == "old@x"))


@form()
def text_that_only_reads(session: Session) -> None:
    session.execute(text("SELECT count(*) FROM users")).all()
    session.connection().exec_driver_sql("SELECT users.id FROM users FOR UPDATE").all() if (
        session.get_bind().dialect.name != "sqlite"
    ) else None
