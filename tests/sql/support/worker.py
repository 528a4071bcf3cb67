"""A process that uses guards: writes, builds or asks for ever, until it is killed.

    python -m tests.sql.support.worker URL STORE write|build|mixed|ask NUMBER

Writes a line for each round it has finished, so that the test knows it is alive.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from itertools import count

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker

import bloomstore
from bloomstore.sql import BloomPlugin, BuildError, GuardedSession
from tests.sql.support.models import Base, Member, Team, User


def main(url: str, path: str, task: str, number: int) -> None:
    logging.disable(logging.WARNING)
    random.seed(number)
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        sa.event.listen(
            engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 20000")
        )
    sessions = sessionmaker(engine, class_=GuardedSession)
    with bloomstore.open(path) as store:
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine, sessions)
        for turn in count():
            if task == "ask":
                engine.connect().close()  # nobody else opens a connection here
                print(plugin.guards["users.email"].why_unknown() or "valid", flush=True)
                time.sleep(0.02)
                continue
            if task == "build":
                try:
                    plugin.build(engine, force=True, patience=30)
                except BuildError as error:
                    print("not built:", error, flush=True)
            else:
                try:
                    write(
                        engine, sessions, f"{number}-{turn}", number * 1_000_000 + turn * 20, task
                    )
                except DBAPIError as error:  # busy or deadlocked: another one will do
                    print("refused:", type(error.orig).__name__, flush=True)
            print("done", turn, flush=True)


def write(
    engine: sa.Engine, sessions: sessionmaker[GuardedSession], label: str, number: int, task: str
) -> None:
    """One transaction of one form."""
    form = random.randrange(7 if task == "mixed" else 6)
    if form == 5:  # under AUTOCOMMIT, with a key that is known
        auto = engine.execution_options(isolation_level="AUTOCOMMIT")
        with auto.connect() as connection:
            connection.execute(sa.insert(Team).values(id=number))
        return
    with sessions() as session:
        if form == 0:
            session.add(User(email=f"{label}@x"))
        elif form == 1:
            session.execute(sa.insert(User), [{"email": f"{label}-{n}@x"} for n in range(5)])
        elif form == 2:
            session.add_all([Member(team_id=number + n, name=label) for n in range(3)])
        elif form == 3:
            session.add_all([Team(id=number + n) for n in range(3)])
        elif form == 4:
            session.add(User(email=f"{label}-before@x"))
            session.flush()
            with session.begin_nested():
                session.execute(
                    sa.update(User)
                    .where(User.email == f"{label}-before@x")
                    .values(email=f"{label}-after@x")
                )
        else:
            session.execute(
                sa.text("INSERT INTO users (email) VALUES (:email)"), {"email": f"{label}-text@x"}
            )
        if random.random() < 0.15:
            session.rollback()
        else:
            session.commit()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
