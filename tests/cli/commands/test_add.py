"""`bloomstore add`: every source of keys, and what is said when it breaks off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import bloomstore
from bloomstore.cli.support import inputs
from bloomstore.keys import Key
from bloomstore.keys import lines as text_lines
from tests.cli.runner import Cli, Terminal


def _holds(store: Path, name: str, keys: Sequence[Key]) -> list[bool]:
    with bloomstore.open(store, read_only=True) as opened:
        found: list[bool] = opened[name].may_contain_many(keys).tolist()
        return found


def test_says_how_many_keys_were_new(cli: Cli, store: Path) -> None:
    assert cli.ok("add", store, "seen", "alice", "carol").out == "1 of 2 keys were new\n"
    assert _holds(store, "seen", ["carol", "nobody"]) == [True, False]


def test_json_has_both_counts(cli: Cli, store: Path) -> None:
    document = cli.ok("add", store, "seen", "alice", "carol", "--json").json
    assert document == {"filter": "seen", "keys": 2, "new": 1}


def test_reads_standard_input_when_no_key_is_given(cli: Cli, store: Path) -> None:
    assert cli.ok("add", store, "seen", stdin=b"x\ny\n").out == "2 of 2 keys were new\n"
    assert _holds(store, "seen", ["x", "y", "x\n"]) == [True, True, False]


def test_reads_arguments_then_files_then_standard_input(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_bytes(b"f1\nf2")
    argv = ["add", store, "seen", "a1", "--from", tmp_path / "keys", "--from", "-"]
    assert cli.ok(*argv, stdin=b"s1\n").out == "4 of 4 keys were new\n"
    assert all(_holds(store, "seen", ["a1", "f1", "f2", "s1"]))


def test_only_the_end_of_a_line_is_stripped_and_an_empty_line_is_the_empty_text(
    cli: Cli, store: Path
) -> None:
    cli.ok("add", store, "seen", stdin=b"\xef\xbb\xbffirst\n spaced \r\n\nlast")
    keys = ["first", " spaced ", "", "last", "spaced", " spaced \r", "\ufefffirst"]
    assert _holds(store, "seen", keys) == [True] * 4 + [False] * 3


def test_null_separates_keys_that_have_newlines(cli: Cli, store: Path) -> None:
    cli.ok("add", store, "seen", "--null", stdin=b"two\nlines\0other\0")
    assert _holds(store, "seen", ["two\nlines", "other", ""]) == [True, True, False]


def test_types_make_different_keys(cli: Cli, store: Path) -> None:
    cli.ok("add", store, "seen", "--type", "int", "17", "-5", "99999999999999999999999")
    cli.ok("add", store, "seen", "--type", "bytes-hex", "00ff", "C0FFEE")
    asked: list[int | str | bytes] = [17, 99999999999999999999999, b"\0\xff", b"\xc0\xff\xee", "17"]
    assert _holds(store, "seen", asked) == [True, True, True, True, False]


def test_create_makes_the_store_and_a_scalable_filter(cli: Cli, new_store: Path) -> None:
    cli.ok("add", new_store, "seen", "x", "--create")
    cli.ok("add", new_store, "seen", "y", "--create")
    with bloomstore.open(new_store, read_only=True) as store:
        assert store["seen"].spec.target_error == 0.01
        assert store["seen"].stats().keys == 2


@pytest.mark.parametrize(
    ("key_type", "line", "expected"),
    [
        ("int", b"1x", "a whole number, got '1x'"),
        ("int", b"", "a whole number, got ''"),
        ("int", b"1_000", "a whole number, got '1_000'"),
        ("bytes-hex", b"abc", "bytes as pairs of hex digits, got 'abc'"),
        ("str", b"\xff", "UTF-8 text, got '\\xff'"),
        ("int", b"y" * 100, "a whole number, got 'yyyy"),
    ],
)
def test_a_bad_line_is_named_and_the_keys_before_it_were_added(
    cli: Cli, store: Path, tmp_path: Path, key_type: str, line: bytes, expected: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"10\n20\n" + line + b"\n30\n")
    result = cli("add", store, "seen", "--type", key_type, "--from", path)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"bloomstore: {path}, line 3: expected {expected}")
    assert result.err.endswith("; 2 keys were added before, 2 of them new\n")
    assert cli("query", store, "seen", "--type", key_type, "10", "20").status == 0
    assert cli("query", store, "seen", "--type", key_type, "30").status == 1


def test_a_bad_argument_and_a_bad_record_are_named_too(cli: Cli, store: Path) -> None:
    result = cli("add", store, "seen", "--type", "int", "1", "two")
    assert "bloomstore: argument 2: expected a whole number" in result.err
    result = cli("add", store, "seen", "--type", "int", "--null", stdin=b"1\0two\0")
    assert "bloomstore: standard input, record 2: expected a whole number" in result.err


def test_a_file_that_is_missing_says_what_was_added_before(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    result = cli("add", store, "seen", "x", "--from", tmp_path / "missing")
    assert result.status == 2
    assert result.err == (
        f"bloomstore: {tmp_path / 'missing'}: No such file or directory;"
        " 1 keys were added before, 1 of them new\n"
    )


def test_a_full_filter_says_how_many_keys_it_took(
    cli: Cli, new_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "PIECE_KEYS", 64)
    cli.ok("create", new_store, "few", "--fixed", "--capacity", "200")
    lines = "".join(f"{number}\n" for number in range(5000)).encode()
    result = cli("add", new_store, "few", "--type", "int", stdin=lines)
    with bloomstore.open(new_store, read_only=True) as store:
        keys = store["few"].stats().keys
    assert result.status == 2
    assert keys >= 200
    assert result.err == (
        "bloomstore: filter 'few' is full: sized for 200 keys and cannot grow;"
        f" {keys} new keys were added before\n"
    )


def test_many_keys_in_small_pieces_are_all_added(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "PIECE_BYTES", 7)  # lines lie across the ends of reads
    monkeypatch.setattr(text_lines, "PIECE_KEYS", 2)
    keys = [f"key {number}" * (number % 4) for number in range(300)]
    path = tmp_path / "keys"
    path.write_text("".join(f"{key}\n" for key in keys))
    assert cli.ok("add", store, "seen", "--from", path, "--json").json["keys"] == 300
    assert all(_holds(store, "seen", keys))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(text_lines, "MOST_KEY_BYTES", 1 << 20)
    result = cli("add", store, "seen", stdin=b"fine\n" + b"x" * (3 << 20))
    assert result.status == 2
    assert "standard input, line 2: expected a key of at most 1 MiB" in result.err


def test_nobody_at_a_terminal_is_left_waiting_for_keys(cli: Cli, store: Path) -> None:
    result = cli("add", store, "seen", stdin=Terminal())
    assert result.status == 2
    assert result.err.startswith("bloomstore: no keys: ")
    assert cli("add", store, "seen", "--from", "-", stdin=Terminal(b"typed\n")).status == 0


def test_an_interruption_says_what_was_added(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = inputs.read_pieces

    def interrupted(args):
        yield from pieces(args)
        raise KeyboardInterrupt

    monkeypatch.setattr("bloomstore.cli.commands.add.read_pieces", interrupted)
    result = cli("add", store, "seen", "x", "alice")
    assert result.status == 130
    assert result.err == "bloomstore: interrupted; 2 keys were added before, 1 of them new\n"
