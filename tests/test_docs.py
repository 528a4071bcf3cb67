"""What the documents say is true: their examples run, their names exist, their drawings match."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

import bloomstore
import bloomstore.sql.alembic
from bloomstore.catalog.environment import TABLES
from bloomstore.cli.main import main
from bloomstore.segment import header
from bloomstore.sql import BloomPlugin
from bloomstore.sql.schema import migrate
from bloomstore.sql.schema.outbox_tables import outbox_name
from tests.support.checkout import ROOT
from tests.support.walks import Step, defines, steps_of

MANUAL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WALKS = ROOT / "docs" / "reading-the-source.md"
README = (ROOT / "README.md").read_text()
FORMAT = (ROOT / "FORMAT.md").read_text()


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def go_up_and_down(revision: dict[str, Any], url: str) -> None:
    """Runs a revision that gives the column users.email an outbox, and takes it back."""
    migrate.upgrade(url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE users (email text)")
        with Operations.context(MigrationContext.configure(connection)):
            revision["upgrade"]()
            assert outbox_name("users.email") in sa.inspect(connection).get_table_names()
            revision["downgrade"]()
    assert outbox_name("users.email") not in sa.inspect(engine).get_table_names()
    engine.dispose()


@pytest.mark.parametrize("document", MANUAL, ids=lambda document: document.stem)
def test_the_examples_of_the_manual_run(
    document: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One after the other, as a reader would type them into one program."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(document.stem)  # where SQLAlchemy looks up the names in annotations
    monkeypatch.setitem(sys.modules, document.stem, module)
    names = vars(module)
    for block in code_blocks(document.read_text(), "python"):
        exec(compile(block, str(document), "exec", dont_inherit=True), names)
    if "upgrade" in names:
        go_up_and_down(names, f"sqlite:///{tmp_path}/app.db")
    for thing in list(names.values()):
        if isinstance(thing, BloomPlugin):
            thing.unlisten()
        elif isinstance(thing, sa.Engine):
            thing.dispose()
        elif isinstance(thing, bloomstore.Store):
            thing.close()
    if document.name == "README.md":
        assert capsys.readouterr().out == "None\n<Answer ABSENT>\nTrue False\n"


@pytest.mark.parametrize("step", steps_of(WALKS), ids=str)
def test_the_walks_through_the_source_name_what_is_there(step: Step) -> None:
    assert (ROOT / step.file).is_file(), step
    assert defines(ROOT / step.file, step.name), step


def test_the_commands_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("alice\ncarol\n")
    (block,) = code_blocks(README, "sh")
    for line in block.splitlines():
        command = shlex.split(line, comments=True)
        assert command[0] == "bloomstore"
        assert main(command[1:]) == 0, line
    shown = capsys.readouterr().out
    assert "maybe\talice" in shown
    assert "absent\tbob" in shown
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_first_steps_run_and_lose_nothing() -> None:
    shown = subprocess.run(
        [sys.executable, ROOT / "tools" / "first_steps.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "0 of them unknown to the filter" in shown
    assert "0 problems" in shown


def test_every_public_name_has_a_docstring_and_is_in_all() -> None:
    for name in bloomstore.__all__:
        thing = getattr(bloomstore, name)
        assert name == "Durability" or thing.__doc__, name


def test_the_format_document_has_the_drawing_of_the_header() -> None:
    row = re.compile(r"^ +(\d+) +(\d+)  (\w[\w ]*?)(?:  |$)", re.MULTILINE)
    drawn, written = row.findall(header.__doc__ or ""), row.findall(FORMAT)
    assert len(drawn) > 15
    assert [field for field in drawn if field not in written] == []


def test_the_format_document_names_every_table() -> None:
    assert [table for table in TABLES if f"| {table} |" not in FORMAT] == []
