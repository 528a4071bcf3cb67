"""Rebuilds against a bare SELECT of the same column through the same driver.

    python tools/bench_rebuild.py                            10^7 rows: PostgreSQL and Parquet
    python tools/bench_rebuild.py --rows 1e6 --rounds 3 --json rebuild.json
    python tools/bench_rebuild.py --url postgresql+psycopg://...

    select     the driver's server-side cursor, fetched in the batches of a rebuild
    rebuild    from the same column: count, read, add, ask again, note, checkpoint, switch
    parquet    the same keys from a Parquet file, against the same SELECT

Select and rebuild take turns, and the ratio is that of their medians. Memory is measured in a
process of its own that rebuilds once: its peak, minus what it had after its imports, without the
vector. The goals are a ratio of 0.7 and 300 MB.

Exit status: 0, or 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import bloomstore
from bloomstore import Scalable
from bloomstore.rebuild import ParquetSource, Source, rebuild
from bloomstore.rebuild.source import BATCH_ROWS
from bloomstore.sql.build.table_source import TableSource, connect, reflect
from tests.sql.support import servers
from tests.support.checkout import environment

TABLE = "bench_rebuild"
COLUMNS = {"id": "bigint", "email": "varchar(320)"}
LEAST_RATIO = 0.7
MOST_MEGABYTES = 300


@contextmanager
def database(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with servers.postgresql() as found:
        yield found.render_as_string(hide_password=False)


def make_table(url: str, rows: int) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {TABLE}")
        connection.exec_driver_sql(f"CREATE TABLE {TABLE} (id bigint, email varchar(320))")
        connection.exec_driver_sql(
            f"INSERT INTO {TABLE} SELECT i::bigint * 7919, 'user.' || i || '@example.org'"
            f" FROM generate_series(1, {rows}) AS i"
        )
        for column in COLUMNS:
            connection.exec_driver_sql(f"CREATE UNIQUE INDEX ON {TABLE} ({column})")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {TABLE}")
    engine.dispose()


def make_parquet(url: str, folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "keys.parquet"
    types = pa.schema({"id": pa.int64(), "email": pa.string()})
    engine = connect(url)
    with engine.connect() as connection, pq.ParquetWriter(path, types) as file:
        result = connection.execution_options(stream_results=True).execute(
            sa.text(f"SELECT id, email FROM {TABLE}")
        )
        for part in result.partitions(BATCH_ROWS):
            ids, emails = zip(*part, strict=True)
            file.write_table(pa.table([pa.array(ids), pa.array(emails)], schema=types))
    engine.dispose()
    return path


def bare_select(url: str, column: str) -> float:
    engine = connect(url)
    raw: Any = engine.raw_connection()
    started = time.perf_counter()
    cursor = raw.cursor(name="bare")
    cursor.execute(f"SELECT {column} FROM {TABLE}")
    while cursor.fetchmany(BATCH_ROWS):
        pass
    seconds = time.perf_counter() - started
    cursor.close()
    raw.close()
    engine.dispose()
    return seconds


def source_of(place: str, column: str) -> Source:
    if "://" in place:
        engine = connect(place)
        return TableSource(engine, reflect(engine, TABLE), [column])
    return ParquetSource(Path(place), [column])


def rebuilt(place: str, column: str, folder: Path) -> float:
    with bloomstore.open(folder / f"store {time.monotonic_ns()}") as store:
        store.create("keys", Scalable(target_error=1e-3))
        started = time.perf_counter()
        rebuild(store, "keys", source_of(place, column))
        return time.perf_counter() - started


def peak_megabytes(place: str, column: str) -> float:
    """Of a process that rebuilds once, beyond its imports and its vector."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.rebuild", "--memory-of", place, "--column", column],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def print_memory(place: str, column: str) -> None:
    import pyarrow.parquet  # noqa: F401  an import is not what is measured

    before = _peak_megabytes()
    with tempfile.TemporaryDirectory() as folder:
        rebuilt(place, column, Path(folder))
        store = next(Path(folder).glob("store*"))
        vector = max(path.stat().st_size for path in (store / "segments").iterdir())
    print(_peak_megabytes() - before - vector / 1e6)


def _peak_megabytes() -> float:
    """Not by getrusage: a child begins with its parent's peak."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="a PostgreSQL that runs already")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--column", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print_memory(args.memory_of, args.column)
        return 0
    rows = int(args.rows)
    lines: list[dict[str, Any]] = []
    with database(args.url) as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_table(url, rows)
        parquet = make_parquet(url, folder)
        for column in COLUMNS:
            times: dict[str, list[float]] = {"select": [], "rebuild": [], "parquet": []}
            for _ in range(args.rounds):
                times["select"].append(bare_select(url, column))
                times["rebuild"].append(rebuilt(url, column, folder))
                times["parquet"].append(rebuilt(str(parquet), column, folder))
            middle = {what: statistics.median(some) for what, some in times.items()}
            for what, place in (("rebuild", url), ("parquet", str(parquet))):
                line: dict[str, Any] = {
                    "source": what,
                    "column": f"{column} {COLUMNS[column]}",
                    "rows_per_second": rows / middle[what],
                    "select_rows_per_second": rows / middle["select"],
                    "ratio": middle["select"] / middle[what],
                    "megabytes": peak_megabytes(place, column),
                }
                lines.append(line)
                print(
                    f"{line['source']:8} {line['column']:18}"
                    f" {line['rows_per_second'] / 1e6:6.2f} M rows/s,"
                    f" select {line['select_rows_per_second'] / 1e6:6.2f},"
                    f" ratio {line['ratio']:.2f}, peak {line['megabytes']:.0f} MB",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "lines": lines}, indent=1))
    missed = [
        line for line in lines if line["ratio"] < LEAST_RATIO or line["megabytes"] > MOST_MEGABYTES
    ]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
