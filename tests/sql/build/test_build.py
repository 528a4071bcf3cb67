"""First builds: one stage for the rows there are, also when several processes begin together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa

import bloomstore
from bloomstore.sql import Answer, BloomPlugin
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.models import Base, User
from tests.support.checkout import environment

BUILD = """
import sys
import sqlalchemy as sa
import bloomstore
from bloomstore.sql import BloomPlugin
from tests.sql.support.models import Base

engine = sa.create_engine(sys.argv[1])
with bloomstore.open(sys.argv[2]) as store:
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    print("ready", flush=True)
    sys.stdin.readline()
    plugin.build(engine, force=True)
    print({name: guard.why_unknown() for name, guard in plugin.guards.items()})
    plugin.unlisten()
"""


def filled(engine: sa.Engine, rows: int) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(User), [{"email": f"{n}@x"} for n in range(rows)])


def test_the_first_build_makes_one_stage(store, engine) -> None:
    filled(engine, 3000)  # thirty times the declared capacity
    plugin = BloomPlugin(store, Base.metadata)
    plugin.listen(engine)
    with engine.begin() as connection:  # keys that are in the filter before it is built
        connection.execute(sa.insert(User).values(id=5000, email="early@x"))
    plugin.build(engine)
    found = store["users.email"].stats()
    assert (len(found.stages), found.keys) == (1, 3001)
    assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
    assert every_row_is_known(plugin, engine) > 6000
    before = store["users.email"].spec
    plugin.build(engine, force=True)  # not the first: nothing is replaced
    assert store["users.email"].spec == before
    plugin.unlisten()


def test_first_builds_of_several_processes_all_succeed(url, engine, tmp_path: Path) -> None:
    filled(engine, 2000)
    path = tmp_path / "shared"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD, url.render_as_string(hide_password=False), str(path)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process, (said, errors) in [(each, each.communicate(timeout=120)) for each in running]:
        assert process.returncode == 0, errors
        assert set(eval(said).values()) == {""}, said
    with bloomstore.open(path) as store:
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(engine)
        assert every_row_is_known(plugin, engine) >= 4000
        assert plugin.probe(User.email, "nobody@x") is Answer.ABSENT
        plugin.unlisten()
