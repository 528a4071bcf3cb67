"""What holds for every command: help, errors in one line, exit statuses, a light import."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bloomstore
from bloomstore.cli.commands import ls
from bloomstore.cli.main import COMMANDS
from tests.cli.runner import Cli


def _python(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, *argv], input=stdin, capture_output=True, timeout=120)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_names_all_its_options_and_shows_examples(
    cli: Cli, command: str
) -> None:
    result = cli.ok(command, "--help")
    parser = argparse.ArgumentParser()
    COMMANDS[command].configure(parser)
    for action in parser._actions:
        for option in action.option_strings:
            assert option in result.out
        if not action.option_strings:
            assert f"  {action.metavar} " in result.out
        assert action.help
    assert "examples:\n" in result.out
    assert f"bloomstore {command}" in COMMANDS[command].EXAMPLES


def test_help_lists_every_command(cli: Cli) -> None:
    result = cli.ok("--help")
    for name, command in COMMANDS.items():
        assert name in result.out
        assert " ".join(command.HELP.split()) in " ".join(result.out.split())


def test_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli.ok("--version").out == f"bloomstore {bloomstore.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["ls"], ["add", "--nonsense"]])
def test_arguments_that_make_no_sense_end_with_status_2(cli: Cli, argv: list[str]) -> None:
    result = cli(*argv)
    assert result.status == 2
    assert result.out == ""
    assert "usage: bloomstore" in result.err


@pytest.mark.parametrize(
    "argv",
    [
        ["add", "STORE", "seen", "x"],
        ["query", "STORE", "seen", "x"],
        ["ls", "STORE"],
        ["info", "STORE"],
        ["checkpoint", "STORE"],
        ["check", "STORE"],
        ["drop", "STORE", "seen", "--yes"],
    ],
)
def test_a_store_that_is_missing_is_one_line_and_status_2_and_is_not_made(
    cli: Cli, tmp_path: Path, argv: list[str]
) -> None:
    missing = tmp_path / "missing"
    result = cli(*[str(missing) if word == "STORE" else word for word in argv])
    assert (result.status, result.out) == (2, "")
    assert result.err == f"bloomstore: no store at {missing}\n"
    assert not missing.exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["add", "STORE", "nobody", "x"],
        ["query", "STORE", "nobody", "x"],
        ["info", "STORE", "nobody"],
        ["check", "STORE", "--filter", "nobody"],
        ["drop", "STORE", "nobody", "--yes"],
    ],
)
def test_a_filter_that_is_missing_is_one_line_and_status_2(
    cli: Cli, store: Path, argv: list[str]
) -> None:
    result = cli(*[str(store) if word == "STORE" else word for word in argv])
    assert (result.status, result.out) == (2, "")
    assert result.err == "bloomstore: no filter named 'nobody' in this store\n"


def test_a_folder_of_somebody_else_is_refused_and_not_touched(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    result = cli("create", tmp_path, "seen")
    assert result.status == 2
    assert "is not a store" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_interruption_ends_with_status_130(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ls, "run", interrupt)
    result = cli("ls", store)
    assert (result.status, result.err) == (130, "bloomstore: interrupted\n")


def test_an_error_of_the_system_names_the_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    def fail(*_: object) -> int:
        raise PermissionError(13, "Permission denied", "/secret")

    monkeypatch.setattr(ls, "run", fail)
    result = cli("ls", store)
    assert (result.status, result.err) == (2, "bloomstore: /secret: Permission denied\n")


def test_a_warning_of_the_package_is_one_line_without_source_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bloomstore.store.process.folder._filesystem", lambda _: "tmpfs")
        result = cli("ls", store)
    assert result.status == 0
    assert result.err == f"bloomstore: warning: {store} is on tmpfs: nothing survives a reboot\n"


def test_a_reader_that_goes_away_is_no_news(store: Path) -> None:
    keys = "".join(f"{number}\n" for number in range(200_000))
    command = f"{sys.executable} -m bloomstore query {store} seen | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        input=keys.encode(),
        capture_output=True,
        timeout=120,
    )
    assert result.stdout == b"absent\t0\n"
    assert result.stderr == b""
    assert result.returncode == 141


def test_the_module_runs_and_its_status_is_that_of_the_command(store: Path) -> None:
    assert _python("-m", "bloomstore", "query", str(store), "seen", "alice").returncode == 0
    assert _python("-m", "bloomstore", "query", str(store), "seen", "nobody").returncode == 1
    assert _python("-m", "bloomstore", "query", str(store), "other", "nobody").returncode == 2


def test_streams_that_were_closed_do_no_harm(store: Path) -> None:
    command = f"{sys.executable} -m bloomstore query {store} seen alice <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], timeout=120).returncode == 0


def test_keys_that_the_terminal_cannot_show_are_escaped(store: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bloomstore", "query", str(store), "seen"],
        input="m\N{LATIN SMALL LETTER U WITH DIAERESIS}".encode(),
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=120,
    )
    assert result.stdout == b"absent\tm\\xfc\n"


def test_importing_the_command_line_leaves_rich_and_matplotlib_alone() -> None:
    code = "import sys, bloomstore.cli.main; print({'rich', 'matplotlib'} & set(sys.modules))"
    assert _python("-c", code).stdout == b"set()\n"
