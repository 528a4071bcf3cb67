"""Every example of the help texts runs, as it is printed, in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bloomstore
from bloomstore.cli import COMMANDS
from bloomstore.sql import migrate


def _examples() -> list[tuple[str, str]]:
    """The command and the text of every example; a backslash joins lines."""
    found = []
    for name, command in COMMANDS.items():
        joined = command.EXAMPLES.replace("\\\n", " ")
        found += [(name, " ".join(line.split())) for line in joined.splitlines()]
    return found


@pytest.fixture
def folder(tmp_path: Path, new_store: Path) -> Path:
    """A folder with what the examples speak of, and `bloomstore` on the path."""
    with bloomstore.open(new_store) as store:
        store.create("seen", bloomstore.Scalable(target_error=0.001)).add("alice")
    (tmp_path / "keys.txt").write_text("alice\nnobody\n")
    migrate.upgrade(f"sqlite:///{tmp_path}/app.db")
    script = tmp_path / "bin" / "bloomstore"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bloomstore "$@"\n')
    script.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("command", "line"), _examples())
def test_example_runs_as_printed(folder: Path, command: str, line: str) -> None:
    assert f"bloomstore {command}" in line
    root = Path(bloomstore.__file__).parents[1]
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=os.environ
        | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    assert result.stderr == b""
    assert result.returncode == 0


def test_every_command_has_an_example() -> None:
    assert {command for command, _ in _examples()} == set(COMMANDS)
