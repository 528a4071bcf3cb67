"""`bloomstore repair` and `backup`."""

from __future__ import annotations

from pathlib import Path

import bloomstore
from tests.cli.runner import Cli


def test_a_sound_store_has_nothing_to_repair(cli: Cli, store: Path) -> None:
    assert cli.ok("repair", store).out == "sound, nothing to repair\n"
    assert cli.ok("repair", store, "--json").json == {"repairs": []}


def test_a_damaged_block_is_mended_and_keeps_its_keys(cli: Cli, tmp_path: Path) -> None:
    path, words = tmp_path / "hurt", tmp_path / "words.txt"
    words.write_text("dora\n")
    with bloomstore.open(path) as opened:
        opened.create("seen", bloomstore.Scalable(target_error=0.01)).add("dora")
    (segment,) = (path / "segments").iterdir()
    content = bytearray(segment.read_bytes())
    content[4100] ^= 0xFF
    segment.write_bytes(content)
    assert cli("check", path).status == 1
    result = cli("repair", path)
    assert result.status == 1
    assert "ones" in result.lines[0]
    assert result.lines[-1] == "mended: 0, need a rebuild: 1"
    assert "rebuild the filter" in cli("check", path).out  # until that is done
    assert cli("query", path, "seen", "dora").status == 0
    cli.ok("rebuild", path, "seen", "--from", words)
    assert cli.ok("check", path).out == "sound\n"


def test_what_only_a_rebuild_can_mend_is_status_1(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lost"
    with bloomstore.open(path) as opened:
        opened.create("seen", bloomstore.Scalable(target_error=0.01)).add("alice")
    (segment,) = (path / "segments").iterdir()
    segment.unlink()
    result = cli("repair", path)
    assert result.status == 1
    assert "rebuild the filter" in result.lines[0]
    assert cli("query", path, "seen", "nobody").status == 0  # maybe


def test_a_backup_is_a_store(cli: Cli, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert "copied" in cli.ok("backup", store, copy).out
    assert cli.ok("check", copy).out == "sound\n"
    assert cli("backup", store, copy).status == 2
