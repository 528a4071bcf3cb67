"""`bloomstore drop`: asks people, demands --yes of scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import Cli, Terminal


def test_yes_removes_the_filter_and_its_files(cli: Cli, store: Path) -> None:
    assert cli.ok("drop", store, "seen", "--yes").out == "removed seen\n"
    assert cli.ok("ls", store).out == "no filters\n"
    assert list((store / "segments").iterdir()) == []


def test_a_script_without_yes_is_refused(cli: Cli, store: Path) -> None:
    result = cli("drop", store, "seen", stdin=b"y\n")
    assert (result.status, result.out) == (2, "")
    assert result.err == "bloomstore: not at a terminal: confirm with --yes\n"
    assert cli.ok("query", store, "seen", "alice").status == 0


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"", b"yesterday\n"])
def test_anything_but_yes_keeps_the_filter(cli: Cli, store: Path, answer: bytes) -> None:
    result = cli("drop", store, "seen", stdin=Terminal(answer))
    assert (result.status, result.out) == (1, "not removed\n")
    assert result.err == "remove filter 'seen' and its 2 keys? [y/N] "
    assert cli.ok("query", store, "seen", "alice").status == 0


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n"])
def test_yes_at_the_terminal_removes_it(cli: Cli, store: Path, answer: bytes) -> None:
    result = cli("drop", store, "seen", stdin=Terminal(answer))
    assert (result.status, result.out) == (0, "removed seen\n")
    assert cli("info", store, "seen").status == 2
