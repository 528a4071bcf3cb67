"""Every example of the help texts runs, as it is printed, in a shell."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import MetaData, create_engine

import bloomstore
from bloomstore.cli.main import COMMANDS
from bloomstore.sql import BloomPlugin
from bloomstore.sql.schema import migrate
from tests.support.checkout import environment


def _examples() -> list[tuple[str, str]]:
    """The command and the text of every example; a backslash joins lines."""
    found = []
    for name, command in COMMANDS.items():
        joined = command.EXAMPLES.replace("\\\n", " ")
        found += [(name, " ".join(line.split())) for line in joined.splitlines()]
    return found


ENVIRONMENT = environment()
MODELS = """
from bloomstore.sql import Guard
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class Base(DeclarativeBase):
    pass

class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(info={"bloomstore": Guard()})
"""


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> MetaData:
    """What models.py declares."""
    path = tmp_path_factory.mktemp("models") / "models.py"
    path.write_text(MODELS)
    found: MetaData = runpy.run_path(str(path))["Base"].metadata
    return found


@pytest.fixture(scope="module")
def database(metadata: MetaData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one row, on the newest revision."""
    path = tmp_path_factory.mktemp("database") / "app.db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(metadata.tables["users"].insert().values(id=1, email="alice"))
    engine.dispose()
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def folder(tmp_path: Path, new_store: Path, metadata: MetaData, database: Path) -> Path:
    """A folder with what the examples speak of, and `bloomstore` on the path."""
    with bloomstore.open(new_store) as store:
        store.create("seen", bloomstore.Scalable(target_error=0.001)).add("alice")
        store.create("ids", bloomstore.Scalable(target_error=0.001))
    with bloomstore.open(tmp_path / "other") as store:
        store.create("seen", bloomstore.Scalable(target_error=0.001)).add("bob")
    (tmp_path / "keys.txt").write_text("alice\nnobody\n")
    (tmp_path / "some.txt").write_text("alice\n")
    for name in ("some", "users"):
        (tmp_path / f"{name}.csv").write_text("id,email\n1,alice\n")
    pq.write_table(pa.table({"id": [1], "email": ["alice"]}), tmp_path / "users.parquet")
    (tmp_path / "models.py").write_text(MODELS)
    shutil.copy(database, tmp_path)
    with bloomstore.open(tmp_path / "guards") as store:
        BloomPlugin(store, metadata)
    script = tmp_path / "bin" / "bloomstore"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bloomstore "$@"\n')
    script.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("command", "line"), _examples())
def test_example_runs_as_printed(folder: Path, command: str, line: str) -> None:
    assert f"bloomstore {command}" in line
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=ENVIRONMENT | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    assert result.stderr == b""
    assert result.returncode == 0


def test_every_command_has_an_example() -> None:
    assert {command for command, _ in _examples()} == set(COMMANDS)
