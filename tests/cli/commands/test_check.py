"""`bloomstore check` and `checkpoint`: a sound store, and one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import bloomstore
from tests.cli.runner import Cli


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store with two filters; a byte of one vector of the first was changed."""
    path = tmp_path / "damaged"
    with bloomstore.open(path) as store:
        for name in ("bad", "good"):
            store.create(name, bloomstore.Scalable(target_error=0.01)).add("alice")
        segment = path / "segments" / store["bad"].stats().stages[0].file
    content = bytearray(segment.read_bytes())
    content[5000] ^= 0xFF
    segment.write_bytes(content)
    return path


def test_a_sound_store_is_status_0_and_one_word(cli: Cli, store: Path) -> None:
    assert cli.ok("check", store).out == "sound\n"
    assert cli.ok("check", store, "--filter", "seen").out == "sound\n"
    assert cli.ok("check", store, "--json").json == {"sound": True, "problems": []}


def test_every_problem_has_its_line_and_the_summary_is_last(cli: Cli, damaged: Path) -> None:
    with bloomstore.open(damaged, read_only=True) as store:
        expected = [str(problem) for problem in store.check()]
    result = cli("check", damaged)
    assert result.status == 1
    assert result.lines == [*expected, f"problems: {len(expected)}"]
    assert "filter 'bad'" in result.lines[0]


def test_only_the_named_filter_is_checked(cli: Cli, damaged: Path) -> None:
    assert cli("check", damaged, "--filter", "good").out == "sound\n"
    assert cli("check", damaged, "--filter", "bad").status == 1


def test_json_has_every_problem_in_parts(cli: Cli, damaged: Path) -> None:
    result = cli("check", damaged, "--json")
    assert result.status == 1
    document = result.json
    assert document["sound"] is False
    first = document["problems"][0]
    assert first["filter"] == "bad"
    assert first["path"].endswith(".seg")
    assert first["what"]


def test_checking_changes_nothing(cli: Cli, damaged: Path) -> None:
    def content() -> dict[Path, bytes]:
        files = (path for path in damaged.rglob("*") if path.suffix == ".seg")
        return {path: path.read_bytes() for path in files}

    before = content()
    assert cli("check", damaged).out == cli("check", damaged).out
    assert content() == before


def test_checkpoint_empties_the_journal(cli: Cli, store: Path) -> None:
    with bloomstore.open(store) as opened:
        opened["seen"].add("carol")
        assert opened["seen"].stats().journal_rows == 1
        result = cli.ok("checkpoint", store)
        assert result.out == "checkpoint of 1 filter, 1 journal row\n"
        assert opened["seen"].stats().journal_rows == 0
    assert cli.ok("checkpoint", store, "--json").json == {"filters": 1, "journal_rows": 0}
    assert cli.ok("query", store, "seen", "carol").out == "maybe\tcarol\n"
