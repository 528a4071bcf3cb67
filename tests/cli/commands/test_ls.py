"""`bloomstore ls`: one line per filter."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from bloomstore import Fixed
from bloomstore.errors import StoreFailed
from tests.cli.runner import Cli


def test_every_filter_has_a_line_with_its_numbers(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened.create("words", Fixed(capacity=1000, target_error=0.01))
        sizes = {name: opened[name].stats() for name in opened}
    lines = cli.ok("ls", store).lines
    assert [line.split()[0] for line in lines[-2:]] == ["seen", "words"]
    seen = lines[-2].split()
    assert seen[1:4] == ["scalable", "2", "1"]
    assert seen[6] == f"{sizes['seen'].bits_per_key:.2f}"
    assert seen[-1] == "sound"
    assert lines[-1].split()[1:4] == ["fixed", "0", "1"]


def test_a_store_without_filters_says_so(cli: Cli, new_store: Path) -> None:
    bloomstore.open(new_store).close()
    assert cli.ok("ls", new_store).out == "no filters\n"
    assert cli.ok("ls", new_store, "--json").json == []


def test_json_has_the_fields_of_stats(cli: Cli, store: Path) -> None:
    (seen,) = cli.ok("ls", store, "--json").json
    assert seen["name"] == "seen"
    assert seen["family"] == "scalable"
    assert seen["keys"] == 2
    assert seen["state"] == "sound"
    assert len(seen["stages"]) == 1
    with bloomstore.open(store, read_only=True) as opened:
        assert seen["file_bytes"] == opened["seen"].stats().file_bytes


def test_a_filter_that_cannot_be_read_does_not_hide_the_others(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bloomstore.open(store) as opened:
        opened.create("other", Fixed(capacity=10, target_error=0.01))
    stats = bloomstore.Filter.stats

    def failing(self: bloomstore.Filter) -> object:
        if self.name == "other":
            raise StoreFailed("the disk is gone")
        return stats(self)

    monkeypatch.setattr(bloomstore.Filter, "stats", failing)
    result = cli("ls", store)
    assert result.status == 1
    assert any(line.startswith("seen") and line.endswith("sound") for line in result.lines)
    assert any(line.endswith("unreadable: the disk is gone") for line in result.lines)
    document = cli("ls", store, "--json").json
    assert {entry["name"]: entry["state"] for entry in document} == {
        "seen": "sound",
        "other": "unreadable",
    }


def test_a_long_reason_is_cut_in_the_table_and_whole_in_json(cli: Cli, store: Path) -> None:
    reason = "a long story " * 20
    with bloomstore.open(store) as opened:
        token = opened["seen"].fence(reason)
    assert cli.ok("ls", store).lines[-1].endswith("...")
    assert len(cli.ok("ls", store).lines[-1]) < 140
    assert reason.strip() in cli.ok("ls", store, "--json").json[0]["reason"]
    with bloomstore.open(store) as opened:
        opened["seen"].unfence(token)


def test_a_name_with_a_newline_stays_on_its_line(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened.create("two\nlines", Fixed(capacity=10, target_error=0.01))
    assert sum("two\\nlines" in line for line in cli.ok("ls", store).lines) == 1
