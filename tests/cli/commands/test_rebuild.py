"""`bloomstore rebuild` and `bloomstore verify`: what they print, change and leave alone."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.rebuild import TextSource, rebuild
from bloomstore.sql import BloomPlugin, Guard
from tests.cli.runner import Cli, Terminal
from tests.support.checkout import ROOT

KEYS = [f"key {number}" for number in range(3000)]


@pytest.fixture
def grown(new_store: Path, tmp_path: Path) -> Path:
    """A store whose filter `seen` has grown by keys, half of which are in keys.txt."""
    with bloomstore.open(new_store) as opened:
        seen = opened.create("seen", bloomstore.Scalable(target_error=0.01, initial_capacity=100))
        seen.add_many(KEYS)
    (tmp_path / "keys.txt").write_text("".join(f"{key}\n" for key in KEYS[:1500]))
    return new_store


def app_db(folder: Path) -> Path:
    """A database with an empty table of users."""
    engine = sa.create_engine(f"sqlite:///{folder}/app.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE users (email VARCHAR(320))")
    engine.dispose()
    return folder / "app.db"


def content(path: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file() and file.name not in ("lock", "lock.mdb", "users")
    }


def test_it_says_what_became_of_the_filter(cli: Cli, grown: Path, tmp_path: Path) -> None:
    result = cli.ok("rebuild", grown, "seen", "--from", tmp_path / "keys.txt")
    assert result.lines[0].startswith("rebuilt seen: 1,500 rows, ")
    assert re.search(r"^keys +2,9\d\d -> 1,[45]\d\d$", result.out, re.MULTILINE)
    assert re.search(r"^stages +5 -> 1$", result.out, re.MULTILINE)


def test_json_has_the_numbers(cli: Cli, grown: Path, tmp_path: Path) -> None:
    source = ("--from", tmp_path / "keys.txt")
    found = cli.ok("rebuild", grown, "seen", *source, "--target-error", "1%", "--json").json
    assert (found["rows"], found["resumed_at"], found["still"]) == (1500, 0, "")
    assert found["spec"]["target_error"] == 0.01


def test_a_dry_run_changes_nothing_and_shows_the_plan(
    cli: Cli, grown: Path, tmp_path: Path
) -> None:
    before = content(grown)
    command = ("rebuild", grown, "seen", "--from", tmp_path / "keys.txt", "--dry-run")
    result = cli.ok(*command)
    assert "rows       1,500" in result.out
    assert "in one stage" in result.out
    assert "resumable  yes" in result.out
    plan = cli.ok(*command, "--capacity", "1M", "--json").json
    assert plan["capacity"] == 1_000_000
    assert plan["file_bytes"] > plan["bits"] / 8
    assert content(grown) == before


def test_what_was_cut_off_can_be_given_up_or_restarted(
    cli: Cli, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ("--from", tmp_path / "keys.txt")
    monkeypatch.setattr("bloomstore.rebuild.text_source._SOURCE_BYTES", 1000)

    def cut_off() -> None:
        def stop(rows: int) -> None:
            if rows > 500:
                raise RuntimeError

        with bloomstore.open(grown) as store, pytest.raises(RuntimeError):
            rebuild(store, "seen", TextSource(tmp_path / "keys.txt"), progress=stop)

    cut_off()
    assert "rebuild" in cli.ok("info", grown, "seen").out
    assert cli.ok("rebuild", grown, "seen", *source, "--give-up").lines == ["given up"]
    assert cli.ok("rebuild", grown, "seen", "--give-up").lines == ["nothing was begun"]
    cut_off()
    result = cli("rebuild", grown, "seen", *source, "--capacity", "9000")
    assert result.status == 2
    assert re.search(
        "another spec: capacity is 9000, was None; it has read [0-9]+ rows: give it up or restart$",
        result.err,
    )
    table = ("--from", f"sqlite:///{app_db(tmp_path)}", "--table", "users", "--column", "email")
    result = cli("rebuild", grown, "seen", *table)
    assert f"source: the table users, was the file {tmp_path}/keys.txt; it has" in result.err
    found = cli.ok("rebuild", grown, "seen", *source, "--restart", "--json").json
    assert found["resumed_at"] == 0
    cut_off()
    found = cli.ok("rebuild", grown, "seen", *source, "--json").json
    assert (found["resumed_at"] > 500, found["rows"]) == (True, 1500)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--from", "nowhere.txt"], "nowhere.txt: No such file"),
        (["--from", "keys.csv"], "keys.csv: name the column of the keys"),
        (["--from", "keys.txt", "--column", "a"], "--column does not go together with a text file"),
        (["--from", "keys.txt", "--table", "a"], "--table does not go together with a file"),
        (["--from", "-"], "--from -: a source is read more than once"),
        (["--from", "sqlite:///app.db", "--table", "t", "--column", "c"], "no table 't'"),
        (["--from", "sqlite:///a.db", "--table", "t"], "sqlite:///a.db: there is no such file"),
        (["--from", "sqlite:///app.db", "--table", "users"], "users: name the column of the keys"),
        (["--from", "nonsense://a", "--table", "t"], "nonsense://...: SQLAlchemy has no such kind"),
        (["--from", "sqlite:///app.db"], "no guard 'seen' was ever built with this store"),
        (["--from", "sqlite:///app.db", "--models", "nowhere:Base"], "--models nowhere:Base: No"),
        (["--from", "sqlite:///app.db", "--select", "SELECT 1 FROM nowhere"], "no such table"),
    ],
)
def test_a_source_that_makes_no_sense_is_one_line(
    cli: Cli,
    grown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    app_db(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    for command in ("rebuild", "verify"):
        result = cli(command, grown, "seen", *options)
        assert (result.status, result.out) == (2, "")
        assert "begun again" not in result.err
        assert {path.name for path in tmp_path.iterdir()} == before
        assert complaint in result.err
        assert result.err.count("\n") == 1


def test_tables_and_selects_of_a_database(cli: Cli, grown: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a INTEGER, b TEXT, PRIMARY KEY (a, b))")
        connection.exec_driver_sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    engine.dispose()
    table = ("--from", url, "--table", "t")
    both = ("rebuild", grown, "seen", *table, "--column", "a", "--column", "b")
    result = cli(*both)
    assert result.status == 2
    assert re.search(
        r"of 2 keys of .*app.db: t \(a, b\) 0 are known, filter 'seen' has 2,9..: another column,"
        r" or another type of keys\?; other_keys \(--other-keys\) says that this is meant$",
        result.err,
    )
    cli.ok(*both, "--other-keys")
    with bloomstore.open(grown, read_only=True) as store:
        assert store["seen"].may_contain_many([(1, "x"), (2, "y"), (2, "x")]).tolist() == [
            True,
            True,
            False,
        ]
    select = ("--from", url, "--select", "SELECT a FROM t WHERE b <> ':x';")
    assert cli.ok("rebuild", grown, "seen", *select, "--other-keys", "--json").json["rows"] == 2
    cli.ok("verify", grown, "seen", *select)
    assert cli("verify", grown, "seen", *table, "--column", "b").status == 1
    result = cli("rebuild", grown, "seen", *table, "--column", "c")
    assert "t has no column 'c', it has a, b" in result.err


def test_verify_names_a_planted_missing_key_and_shows_the_error(
    cli: Cli, grown: Path, tmp_path: Path
) -> None:
    source = ("--from", tmp_path / "keys.txt")
    result = cli.ok("verify", grown, "seen", *source)
    assert result.lines[0] == "0 of 1,500 rows are missing"
    assert "of 100,000 absent keys; target 0.01" in result.lines[1]
    with (tmp_path / "keys.txt").open("a") as file:
        file.write("planted\nplanted too\n")
    result = cli("verify", grown, "seen", *source)
    assert (result.status, result.err) == (1, "")
    assert result.lines[:3] == [
        "missing: 'planted'",
        "missing: 'planted too'",
        "2 of 1,502 rows are missing",
    ]
    found = cli("verify", grown, "seen", *source, "--probes", "10k", "--json")
    assert (found.status, found.json["missing"], found.json["probes"]) == (1, 2, 10_000)
    assert 0 < found.json["observed_error"] < 0.03


def test_a_fenced_filter_cannot_be_verified(cli: Cli, grown: Path, tmp_path: Path) -> None:
    with bloomstore.open(grown) as store:
        token = store["seen"].fence("why not")
    result = cli("verify", grown, "seen", "--from", tmp_path / "keys.txt")
    assert result.status == 2
    assert "answers maybe to everything: fenced: why not" in result.err
    result = cli("rebuild", grown, "seen", "--from", tmp_path / "keys.txt")
    assert result.status == 1
    assert result.lines[-1] == "still answers maybe: fenced: why not"
    with bloomstore.open(grown) as store:
        store["seen"].unfence(token)


def test_progress_shows_rows_and_what_is_left(
    cli: Cli, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bloomstore.rebuild.text_source._SOURCE_BYTES", 1000)
    monkeypatch.setattr("bloomstore.cli.support.progress.WAIT_SECONDS", 0.0)
    monkeypatch.setattr("bloomstore.cli.support.progress.REDRAW_SECONDS", 0.0)
    monkeypatch.setattr("bloomstore.cli.support.progress._rich_bar", lambda: None)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    cli("rebuild", grown, "seen", "--from", tmp_path / "keys.txt")
    assert " rows, " in terminal.text
    assert "% of 1,500" in terminal.text
    assert " s left" in terminal.text


def test_the_tool_of_a_checkout_is_the_same_command(grown: Path, tmp_path: Path) -> None:
    tool = ROOT / "tools" / "rebuild.py"
    command: list[str | Path] = [
        sys.executable,
        tool,
        grown,
        "seen",
        "--from",
        tmp_path / "keys.txt",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert '"rows": 1500' in done.stdout


def test_a_guard_whose_database_file_was_replaced_is_rebuilt(
    cli: Cli, new_store: Path, tmp_path: Path
) -> None:
    """Its filter is replaced by a new one, and the report is about that one."""
    guard = {"bloomstore": Guard()}
    metadata = sa.MetaData()
    users = sa.Table("users", metadata, sa.Column("id", sa.Integer, primary_key=True, info=guard))
    url = f"sqlite:///{tmp_path}/app.db"
    engine = sa.create_engine(url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(users.insert(), [{"id": number} for number in range(20)])
    with bloomstore.open(new_store) as opened:
        plugin = BloomPlugin(opened, metadata)
        plugin.listen(engine)
        plugin.build(engine)
        plugin.unlisten()
    engine.dispose()
    for form in ([], ["--json"]):
        shutil.copy(tmp_path / "app.db", tmp_path / "copy.db")
        (tmp_path / "copy.db").replace(tmp_path / "app.db")
        result = cli.ok("rebuild", new_store, "users.id", "--from", url, *form)
        assert result.json["rows"] == 20 if form else "rebuilt users.id: 20 rows, " in result.out
