"""Ranges of an integer column, read side by side: every row, resumed, each proved by its count."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore import Scalable
from bloomstore.cli.main import main
from bloomstore.rebuild import Incomplete, RebuildError, SourceError, rebuild
from bloomstore.rebuild.read_ahead import together
from bloomstore.sql import Answer, BloomPlugin
from bloomstore.sql.build import fetch, table_source
from bloomstore.sql.build.fetch import parts_of
from bloomstore.sql.build.key_ranges import Range, divided
from bloomstore.sql.build.table_source import TableSource, reflect
from tests.rebuild.sources import Stop
from tests.sql.support.checks import every_row_is_known
from tests.sql.support.models import User
from tests.sql.support.workers import again_and_again, workers

IDS = [*range(-40, 0), *range(1, 200), *range(1000, 1100)]  # unevenly spread


@pytest.fixture
def table(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> sa.Table:
    """339 users in batches of 10."""
    monkeypatch.setattr(table_source, "BATCH_ROWS", 10)
    with engine.begin() as connection:
        rows = [{"id": number, "email": f"{number}@x"} for number in IDS]
        connection.execute(sa.insert(User), rows)
    return reflect(engine, "users")


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 50])
@pytest.mark.parametrize(("least", "most"), [(0, 0), (-5, 4), (1, 1 << 64), (7, 1007)])
def test_ranges_are_every_value_there_can_be(least: int, most: int, parts: int) -> None:
    ranges = divided(least, most, parts)
    assert len(ranges) == min(parts, most - least + 1)
    assert (ranges[0].first, ranges[-1].end) == (None, None)
    for one, next_ in pairwise(ranges):
        assert one.end == next_.first
        assert next_.first is not None
        assert least < next_.first <= most
        assert one.first is None or one.first < next_.first


@pytest.mark.parametrize("parallel", [2, 5])  # 5: one range ends between neighbours
def test_every_row_is_read_once_from_every_position(
    engine: sa.Engine, table: sa.Table, parallel: int
) -> None:
    source = TableSource(engine, table, ["id"], parallel=parallel)
    batches = list(source.batches(None))
    keys: list[Any] = [key for batch in batches for key in batch.keys]
    assert sorted(keys) == IDS
    assert sum(batch.rows for batch in batches) == len(IDS)
    for done, batch in enumerate(batches, start=1):
        read = {key for one in batches[:done] for key in one.keys}
        rest = {key for later in source.batches(batch.position) for key in later.keys}
        assert read | rest == set(IDS)
        assert len(read & rest) <= parallel  # the rows at the positions themselves
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_rows_beyond_the_ends_that_came_after_the_division_are_read(
    engine: sa.Engine, table: sa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TableSource._ranges
    beyond = [-1_000_000, 1_000_000]

    def write_after(self: TableSource) -> list[Range]:
        found = real(self)
        with engine.begin() as connection:
            rows = [{"id": number, "email": f"{number}@x"} for number in beyond]
            connection.execute(sa.insert(User), rows)
        return found

    monkeypatch.setattr(TableSource, "_ranges", write_after)
    source = TableSource(engine, table, ["id"], parallel=3)
    read: list[Any] = [key for batch in source.batches(None) for key in batch.keys]
    assert sorted(read) == sorted([*IDS, *beyond])


def test_an_empty_table_has_no_rows(engine: sa.Engine) -> None:
    source = TableSource(engine, reflect(engine, "users"), ["id"], parallel=4)
    assert list(source.batches(None)) == []


@pytest.mark.usefixtures("table")
def test_a_guard_is_rebuilt_in_parallel_and_goes_on_where_it_was_cut_off(
    plugin: BloomPlugin, engine: sa.Engine
) -> None:
    def stop(name: str, rows: int) -> None:
        if rows >= 150:
            raise Stop

    with pytest.raises(Stop):
        plugin.rebuild(engine, User.id, parallel=3, progress=stop)
    with engine.begin() as connection:
        connection.execute(sa.insert(User).values(id=-999, email="between"))
    with pytest.raises(RebuildError, match="parallel is 2, was 3"):
        plugin.rebuild(engine, User.id, parallel=2)
    (done,) = plugin.rebuild(engine, User.id, parallel=3)
    assert (done.resumed_at >= 140, done.began_again, done.still) == (True, "", "")
    plugin.rebuild(engine, User.email)
    assert every_row_is_known(plugin, engine)
    assert plugin.probe(User.id, 4711) is Answer.ABSENT


def test_a_row_that_one_range_lost_is_noticed(
    engine: sa.Engine, table: sa.Table, store: bloomstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = parts_of

    def truncated(*arguments: Any) -> Iterator[list[Any]]:
        for part in real(*arguments):
            yield [value for value in part if value != 150]

    monkeypatch.setattr(fetch, "parts_of", truncated)
    store.create("plain", Scalable(target_error=1e-3)).add("before")
    with pytest.raises(Incomplete, match="read 238 rows of 239"):
        rebuild(store, "plain", TableSource(engine, table, ["id"], parallel=4))
    assert "before" in store["plain"]  # nothing was switched
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_the_first_error_ends_all_and_every_generator_is_closed() -> None:
    closed = []

    def count(place: int, error: Exception | None) -> Iterator[int]:
        try:
            for number in range(1_000_000):
                yield number
                if number == 5 and error is not None:
                    raise error
        finally:
            closed.append(place)

    generators: Any = [count(0, None), count(1, SourceError("broken")), count(2, None)]
    given: list[Any] = []
    with pytest.raises(SourceError, match="broken"):
        given.extend(together(generators))
    assert sorted(closed) == [0, 1, 2]
    assert [number for place, number in given if place == 1] == list(range(6))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (["email"], r"expected one column of integers, got VARCHAR"),
        (["id", "email"], r"expected one column of integers, got .*INTEGER.*, VARCHAR"),
        (["age"], "no index of users begins with age"),
    ],
)
def test_other_columns_are_refused(engine: sa.Engine, columns: list[str], why: str) -> None:
    with pytest.raises(SourceError, match=why):
        TableSource(engine, reflect(engine, "users"), columns, parallel=2)


def test_a_database_in_memory_and_no_connection_are_refused(engine: sa.Engine) -> None:
    with pytest.raises(SourceError, match="expected 1 connection or more, got 0"):
        TableSource(engine, reflect(engine, "users"), ["id"], parallel=0)
    memory = sa.create_engine("sqlite://")
    with memory.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    with pytest.raises(SourceError, match="no connection for each thread"):
        TableSource(memory, reflect(memory, "t"), ["id"], parallel=2)


def test_sqlite_may_keep_other_values_in_a_column_of_integers(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'odd.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
        connection.exec_driver_sql("CREATE INDEX i ON t (n)")
        connection.exec_driver_sql("INSERT INTO t VALUES (1), (2), (1.5), (NULL), (9)")
    source = TableSource(engine, reflect(engine, "t"), ["n"], parallel=2)
    keys: list[Any] = [key for batch in source.batches(None) for key in batch.keys]
    assert sorted(keys) == [1, 1.5, 2, 9]
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES ('text')")
    with pytest.raises(SourceError, match="values from 1 to 'text', expected integers"):
        list(source.batches(None))
    engine.dispose()


def test_no_row_is_missed_while_others_write(
    checker: BloomPlugin, engine: sa.Engine, url: sa.URL, store: bloomstore.Store
) -> None:
    def in_parallel() -> None:
        checker.rebuild(engine, User.id, patience=30, parallel=3)

    with workers(url, store.path, "write", "write"):
        again_and_again(checker, engine, in_parallel)
    assert every_row_is_known(checker, engine) > 20
    assert checker.stats()["users.id"]["state"] == "valid"


def test_from_the_command_line(
    engine: sa.Engine,
    table: sa.Table,
    url: sa.URL,
    store: bloomstore.Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.create("ids", Scalable(target_error=1e-3))
    arguments = [str(store.path), "ids", "--from", url.render_as_string(hide_password=False)]
    arguments += ["--table", "users", "--parallel", "3", "--column"]
    assert main(["rebuild", *arguments, "id"]) == 0
    assert "rebuilt ids: 339 rows" in capsys.readouterr().out
    assert store["ids"].may_contain_many(IDS).all()
    assert main(["rebuild", *arguments, "email"]) == 2
    assert "cannot be read in parallel" in capsys.readouterr().err
    keys = tmp_path / "keys.txt"
    keys.write_text("1\n")
    assert main(["rebuild", str(store.path), "ids", "--from", str(keys), "--parallel", "2"]) == 2
    assert "--parallel does not go together with a file" in capsys.readouterr().err
