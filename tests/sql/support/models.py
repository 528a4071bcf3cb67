"""The tables of the tests: a plain one, one with a composite key, one with a server-made key."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import ForeignKey, String, Table, Uuid, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from bloomstore.sql import Guard

# MariaDB's default collations have no canonical form that is known: the tests ask for a binary one.
Text = String(60).with_variant(String(60, collation="utf8mb4_bin"), "mysql", "mariadb")


class Base(DeclarativeBase):
    """All tables."""

    if TYPE_CHECKING:
        __table__: ClassVar[Table]


class User(Base):
    """Ids are made by the server."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True, info={"bloomstore": Guard()})
    email: Mapped[str | None] = mapped_column(
        Text, unique=True, info={"bloomstore": Guard(initial_capacity=100)}
    )
    age: Mapped[int | None]
    team_id: Mapped[int | None] = mapped_column(ForeignKey("teams.id"))
    team: Mapped[Team | None] = relationship()


class Team(Base):
    """Keys are made here."""

    __tablename__ = "teams"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard()}
    )
    label: Mapped[uuid.UUID] = mapped_column(
        Uuid, default=uuid.uuid4, info={"bloomstore": Guard(durability="process")}
    )


class Member(Base):
    """A key of two columns."""

    __tablename__ = "members"
    __bloomstore__ = Guard("team_id", "name")
    team_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    rank: Mapped[int | None]


class Ticket(Base):
    """The server makes a column that is not the key."""

    __tablename__ = "tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(
        Text, server_default=text("'none'"), info={"bloomstore": Guard()}
    )
