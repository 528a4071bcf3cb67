"""`bloomstore query`: the answers, their forms, and a status like grep's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bloomstore
from tests.cli.runner import Cli


def test_every_key_has_its_line_in_order(cli: Cli, store: Path) -> None:
    result = cli.ok("query", store, "seen", "alice", "nobody", "bob")
    assert result.out == "maybe\talice\nabsent\tnobody\nmaybe\tbob\n"


@pytest.mark.parametrize(
    ("keys", "status"), [(["alice"], 0), (["nobody"], 1), (["nobody", "bob"], 0), (["x", "y"], 1)]
)
def test_status_says_whether_any_key_may_be_there(
    cli: Cli, store: Path, keys: list[str], status: int
) -> None:
    for form in ([], ["-q"], ["--count"], ["--json"], ["--absent"]):
        assert cli("query", store, "seen", *form, *keys).status == status


def test_no_key_at_all_is_status_1(cli: Cli, store: Path) -> None:
    assert cli("query", store, "seen").status == 1


def test_maybe_and_absent_print_bare_keys_of_one_kind(cli: Cli, store: Path) -> None:
    keys = ["alice", "nobody", "no one"]
    assert cli("query", store, "seen", "--maybe", *keys).out == "alice\n"
    assert cli("query", store, "seen", "--absent", *keys).out == "nobody\nno one\n"


def test_quiet_prints_nothing(cli: Cli, store: Path) -> None:
    assert cli("query", store, "seen", "--quiet", "alice", "nobody").out == ""


def test_count_counts_each_kind(cli: Cli, store: Path) -> None:
    keys = ["alice", "nobody", "no one"]
    assert cli("query", store, "seen", "--count", *keys).out == "maybe\t1\nabsent\t2\n"
    assert cli("query", store, "seen", "--count", "--absent", *keys).out == "2\n"
    assert cli("query", store, "seen", "--count", "--json", *keys).json == {"maybe": 1, "absent": 2}


def test_json_is_one_object_per_line(cli: Cli, store: Path) -> None:
    result = cli("query", store, "seen", "--json", "alice", 'no"body')
    assert [json.loads(line) for line in result.lines] == [
        {"key": "alice", "answer": "maybe"},
        {"key": 'no"body', "answer": "absent"},
    ]


def test_null_ends_the_answers_too(cli: Cli, store: Path) -> None:
    result = cli("query", store, "seen", "--null", stdin=b"alice\0no\nbody\0")
    assert result.out == "maybe\talice\0absent\tno\nbody\0"


def test_keys_are_printed_as_they_were_written(cli: Cli, store: Path) -> None:
    cli.ok("add", store, "seen", "--type", "int", "7")
    result = cli("query", store, "seen", "--type", "int", "007", "+7", "8")
    assert result.out == "maybe\t007\nmaybe\t+7\nabsent\t8\n"


def test_a_bad_line_ends_with_status_2_after_the_answers_before_it(cli: Cli, store: Path) -> None:
    result = cli("query", store, "seen", "--type", "int", stdin=b"1\nx\n")
    assert result.status == 2
    assert result.out == "absent\t1\n"
    assert result.err == ("bloomstore: standard input, line 2: expected a whole number, got 'x'\n")


def test_a_filter_in_doubt_answers_maybe_and_says_why(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        token = opened["seen"].fence("rows are being moved")
    result = cli("query", store, "seen", "nobody")
    assert (result.status, result.out) == (0, "maybe\tnobody\n")
    assert result.err.startswith("bloomstore: warning: filter 'seen' is fenced")
    assert "rows are being moved" in result.err
    with bloomstore.open(store) as opened:
        opened["seen"].unfence(token)


def test_answers_come_while_the_sender_still_holds_the_pipe(store: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bloomstore", "query", str(store), "seen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for key, answer in ((b"alice\n", b"maybe\talice\n"), (b"x\n", b"absent\tx\n")):
        process.stdin.write(key)
        process.stdin.flush()
        assert process.stdout.readline() == answer
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()


@pytest.mark.parametrize("command", ["query", "add"])
@pytest.mark.parametrize("more", [[], ["--json"], ["--type", "int"]])
def test_keys_of_a_guard_are_not_taken_from_the_command_line(
    cli: Cli, store: Path, command: str, more: list[str]
) -> None:
    """Only the guard knows their form, so "absent" would be wrong for a key as it is typed."""
    with bloomstore.open(store) as opened:
        opened.notes["guard/seen"] = b"{}"
        before = opened["seen"].stats().keys
    result = cli(command, store, "seen", *more, "5")
    assert (result.status, result.out) == (2, "")
    for words in ("'seen' is the filter of a guard", "plugin.probe(", "`bloomstore rebuild`"):
        assert words in result.err
    with bloomstore.open(store) as opened:
        assert opened["seen"].stats().keys == before


def test_add_creates_no_filter_in_place_of_a_guards(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened.notes["guard/users.id"] = b"{}"
    assert cli("add", store, "users.id", "--create", "5").status == 2
    with bloomstore.open(store) as opened:
        assert "users.id" not in opened
