"""What guards save and what they cost, as ratios against the same call without a guard.

    python tools/bench_sql.py                          SQLite and an embedded PostgreSQL
    python tools/bench_sql.py --databases sqlite --rows 20000 --json sql.json
    python tools/bench_sql.py --url postgresql+psycopg://...

    get miss, hit            GuardedSession.get against Session.get
    first get miss           one absent get of a new session, as in a web request: a plain session
                             begins a transaction for it
    Guarded() miss, hit      select(...).options(Guarded()) against the same without it
    no option                a session that listens and does not ask, against one that does not
    IN                       a list of 10 000 keys of which 99 % are absent, for entities and for
                             columns; "left out" has the same lists without their absent keys, as if
                             a guard cost nothing: no guard can gain more
    commit                   one ORM insert, durability process and commit; and a table with two
                             guards against the same table with one

Both sides run in turns of many calls, on the same tables and each in a transaction that is open;
elapsed time is compared, means include the false positives, and the filters have a target error of
0.1 %. Gains are ratios of medians. Costs are a few percent of calls that allocate much, and two
engines that are alike differ by 1 %, by where their objects happen to lie: costs are ratios of
lower quartiles over many short turns, and of those the median over pairs of fresh engines.
Exit status: 0, 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import sqlalchemy as sa
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import bloomstore
from bloomstore.sql import BloomPlugin, Guard, Guarded, GuardedSession
from tests.sql.support import servers

LISTED = 10_000
SHORT_TURNS = 40
Use = Callable[[Any, Any], None]  # a session and a key, or a list of keys
PAIRS = 5  # of engines per round, see above


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "bench_users"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(durability="process")}
    )
    email: Mapped[str] = mapped_column(
        sa.Text, unique=True, info={"bloomstore": Guard(durability="process")}
    )


class Event(Base):
    __tablename__ = "bench_events"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(durability="process")}
    )


class Ledger(DeclarativeBase):
    pass


class Payment(Ledger):
    """In a store of its own: who holds the writer lock of one is not disturbed by the other."""

    __tablename__ = "bench_payments"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(durability="commit")}
    )


class Receipt(Ledger):
    """One guard; Invoice is the same table with two."""

    __tablename__ = "bench_receipts"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(durability="commit")}
    )
    number: Mapped[int] = mapped_column(unique=True)


class Invoice(Ledger):
    __tablename__ = "bench_invoices"
    id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, info={"bloomstore": Guard(durability="commit")}
    )
    number: Mapped[int] = mapped_column(
        unique=True, info={"bloomstore": Guard(durability="commit")}
    )


@dataclass
class Line:
    """One comparison. `ratio` is without / with for gains, with / without for costs."""

    database: str
    name: str
    without_us: float
    with_us: float
    ratio: float
    goal: str
    met: bool


def main() -> int:
    arguments = parse()
    lines: list[Line] = []
    for kind, url in databases(arguments):
        print(f"{kind}: {arguments.rows} rows, {arguments.rounds} rounds", file=sys.stderr)
        lines += list(measure(kind, url, arguments.rows, arguments.rounds))
    width = max(len(line.name) for line in lines)
    print(f"{'':10}  {'':{width}}  {'without':>12}  {'with':>12}  {'ratio':>8}  goal")
    for line in lines:
        print(
            f"{line.database:10}  {line.name:{width}}  {line.without_us:9.2f} us"
            f"  {line.with_us:9.2f} us  {line.ratio:7.2f}x  {line.goal}"
            f"  {'ok' if line.met else 'MISS'}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))
    return 0 if all(line.met for line in lines) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", default="sqlite,postgresql")
    parser.add_argument("--url", help="measure on this database instead")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def databases(arguments: argparse.Namespace) -> Iterator[tuple[str, sa.URL]]:
    if arguments.url:
        url = sa.make_url(arguments.url)
        yield url.get_backend_name(), url
        return
    for kind in arguments.databases.split(","):
        with database(kind) as url:
            yield kind, url


@contextmanager
def database(kind: str) -> Iterator[sa.URL]:

    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            yield sa.URL.create("sqlite", database=f"{folder}/bench.db")
    elif kind == "postgresql":
        with servers.postgresql(fsync="on") as url:
            yield url
    else:
        with servers.mariadb() as url:
            yield url


def measure(kind: str, url: sa.URL, rows: int, rounds: int) -> Iterator[Line]:
    bare, guarded = sa.create_engine(url), sa.create_engine(url)
    for metadata in (Base.metadata, Ledger.metadata):
        metadata.drop_all(bare)
        metadata.create_all(bare)
    with bare.begin() as connection:
        connection.execute(
            sa.insert(User), [{"id": n, "email": f"user{n}@example.org"} for n in range(rows)]
        )
    plain, ours = sessionmaker(bare), sessionmaker(guarded, class_=GuardedSession)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        bloomstore.open(Path(folder) / "s") as store,
    ):
        plugin = BloomPlugin(store, Base.metadata)
        plugin.listen(guarded, ours)
        plugin.build(guarded)
        yield from lookups(kind, plain, ours, rows, rounds)
        yield first_gets(kind, plain, ours, rows, rounds)
        plugin.unlisten()
        yield from costs(kind, url, plugin, rows, rounds)
        with bloomstore.open(Path(folder) / "t", durability="commit") as second:
            durable = BloomPlugin(second, Ledger.metadata)
            durable.listen(bare)
            durable.build(bare)
            durable.unlisten()
            yield from commits(kind, url, plugin, durable, Path(folder), rounds)
    for metadata in (Base.metadata, Ledger.metadata):
        metadata.drop_all(bare)
    bare.dispose()
    guarded.dispose()


def get(session: Session, keys: list[int]) -> None:
    for key in keys:
        session.get(User, key)


def select_one(session: Session, keys: list[int]) -> None:
    for key in keys:
        session.scalars(select(User).where(User.email == f"user{key}@example.org")).first()


def select_guarded(session: Session, keys: list[int]) -> None:
    for key in keys:
        query = select(User).where(User.email == f"user{key}@example.org")
        session.scalars(query.options(Guarded())).first()


def lookups(kind: str, plain: Any, ours: Any, rows: int, rounds: int) -> Iterator[Line]:
    """What is gained when keys are absent."""
    is_sqlite = kind == "sqlite"
    absent = iter(range(10 * rows, 10**12))
    some = random.Random(1)
    wanted = User.id.in_(sa.bindparam("wanted", expanding=True))
    entities = select(User).where(wanted)
    columns = select(User.id, User.email).where(wanted)

    def listed(query: Any) -> Callable[[Session, list[list[int]]], None]:
        def run(session: Session, lists: list[list[int]]) -> None:
            for keys in lists:
                session.execute(query, {"wanted": keys}).all()

        return run

    def only_present(query: Any) -> Callable[[Session, list[list[int]]], None]:
        # The list begins with the absent keys, see mixed.
        run = listed(query)
        return lambda session, lists: run(session, [keys[-(LISTED // 100) :] for keys in lists])

    def literal(guard: bool) -> Callable[[Session, list[list[int]]], None]:
        def run(session: Session, lists: list[list[int]]) -> None:
            for keys in lists:
                query = select(User).where(User.id.in_(keys))
                session.scalars(query.options(Guarded()) if guard else query).all()

        return run

    def misses(count: int) -> list[int]:
        return [next(absent) for _ in range(count)]

    def mixed(count: int) -> list[list[int]]:
        part = LISTED // 100
        return [misses(LISTED - part) + some.sample(range(rows), part) for _ in range(count)]

    # Turns of both sides take about the same time.
    table: list[tuple[str, Use, Use, Any, Callable[[int], list[Any]], int, int, float]] = [
        ("get miss", get, get, ours, misses, 300, 20_000, 100 if is_sqlite else 150),
        ("Guarded() miss", select_one, select_guarded, ours, misses, 300, 1000,
         3 if is_sqlite else 5),
        ("IN of 10000, 99 % absent, columns", listed(columns), listed(columns.options(Guarded())),
         ours, mixed, 3, 40, 15 if is_sqlite else 30),
        ("the same, absent keys left out", listed(columns), only_present(columns), plain, mixed,
         3, 40, 1),
        # An entity is expensive to make, so there is less to gain.
        ("IN of 10000, 99 % absent, entities", listed(entities),
         listed(entities.options(Guarded())), ours, mixed, 3, 40, 1),
        ("the same, absent keys left out", listed(entities), only_present(entities), plain, mixed,
         3, 40, 1),
        # Most of what is left is SQLAlchemy's: it looks at each element of a literal list.
        ("IN of 10000, literal list", literal(False), literal(True), ours, mixed, 3, 10, 1),
    ]  # fmt: skip
    for name, without, with_guard, factory, keys, count, count_ours, goal in table:
        was, now = [], []
        for _ in range(rounds):
            was.append(timed(plain, without, keys(count)))
            now.append(timed(factory, with_guard, keys(count_ours)))
        yield line(kind, name, statistics.median(was), statistics.median(now), goal, gains=True)


def first_gets(kind: str, plain: Any, ours: Any, rows: int, rounds: int) -> Line:
    """What one absent get takes in a session that was made before and has no connection yet."""
    absent = iter(range(10**9, 2 * 10**9))

    def first(factory: Any, count: int) -> float:
        sessions = [factory() for _ in range(count)]
        seconds = 0.0
        for session in sessions:
            key = next(absent)
            begin = time.perf_counter()
            session.get(User, key)
            seconds += time.perf_counter() - begin
            session.close()
        return seconds / count * 1e6

    was, now = [], []
    for _ in range(rounds):
        was.append(first(plain, 300))
        now.append(first(ours, 3000))
    goal = 40 if kind == "sqlite" else 60
    median = statistics.median
    return line(kind, "first get miss of a session", median(was), median(now), goal, gains=True)


def costs(kind: str, url: sa.URL, plugin: BloomPlugin, rows: int, rounds: int) -> Iterator[Line]:
    """What a guard costs when keys are there, or nobody asks."""
    is_sqlite = kind == "sqlite"
    some = random.Random(1)
    table = {
        "get hit": (get, get, 1.05),
        "Guarded() hit": (select_one, select_guarded, 1.15 if is_sqlite else 1.08),
        "no option": (select_one, select_one, 1.03),
    }
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in table}
    for _ in range(PAIRS * rounds):
        bare, guarded = sa.create_engine(url), sa.create_engine(url)
        plain, ours = sessionmaker(bare), sessionmaker(guarded, class_=GuardedSession)
        plugin.listen(guarded, ours)
        for name, (without, with_guard, _) in table.items():
            was, now = [], []
            for _ in range(SHORT_TURNS // PAIRS):
                was.append(timed(plain, without, some.sample(range(rows), 50)))
                now.append(timed(ours, with_guard, some.sample(range(rows), 50)))
            pairs[name].append((lower_quartile(was), lower_quartile(now)))
        plugin.unlisten()
        bare.dispose()
        guarded.dispose()
    for name, found in pairs.items():
        usual = sorted(found, key=lambda pair: pair[1] / pair[0])[len(found) // 2]
        yield line(kind, name, *usual, table[name][2], gains=False)


def lower_quartile(times: list[float]) -> float:
    return statistics.quantiles(times, n=4)[0]


def timed(factory: Any, act: Use, keys: list[Any]) -> float:
    """Microseconds per key or list of keys, in a transaction that is open and warm."""
    with factory() as session:
        session.execute(sa.text("SELECT 1"))
        begin = time.perf_counter()
        act(session, keys)
        return (time.perf_counter() - begin) / len(keys) * 1e6


def commits(
    kind: str, url: sa.URL, plugin: BloomPlugin, durable: BloomPlugin, folder: Path, rounds: int
) -> Iterator[Line]:
    """One ORM insert and its commit; and the same with a bare LMDB commit in between.

    What a commit to one file adds to a commit to another is more than what it takes alone: the
    file system has more left to do. So both additions are measured at the same point.
    """
    numbers = iter(range(10**9))
    environment = lmdb.open(str(folder / "bare"), map_size=1 << 24)

    def insert(factory: Any, entity: Any, *more: str) -> float:
        with factory() as session:
            session.add(entity(**{name: next(numbers) for name in ("id", *more)}))
            begin = time.perf_counter()
            session.commit()
            return (time.perf_counter() - begin) * 1e6

    def insert_beside(factory: Any) -> float:
        with factory() as session:
            session.add(Payment(id=next(numbers)))
            begin = time.perf_counter()
            session.flush()
            with environment.begin(write=True) as transaction:
                transaction.put(str(next(numbers)).encode(), b"x" * 100)
            session.commit()
            return (time.perf_counter() - begin) * 1e6

    found: list[dict[str, float]] = []
    for _ in range(PAIRS * rounds):
        engines = [sa.create_engine(url) for _ in range(4)]
        bare, beside, guarded, kept = map(sessionmaker, engines)
        plugin.listen(engines[2], guarded)
        durable.listen(engines[3], kept)
        turns = {
            "plain": partial(insert, bare, Event),
            "process": partial(insert, guarded, Event),
            "plain payment": partial(insert, bare, Payment),
            "lmdb": partial(insert_beside, beside),
            "commit": partial(insert, kept, Payment),
            "one guard": partial(insert, kept, Receipt, "number"),
            "two guards": partial(insert, kept, Invoice, "number"),
        }
        times: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(4):
            for name in random.sample(list(turns), len(turns)):
                times[name] += [turns[name]() for _ in range(SHORT_TURNS // 4)]
        found.append({name: statistics.median(each) for name, each in times.items()})
        plugin.unlisten()
        durable.unlisten()
        for engine in engines:
            engine.dispose()
    environment.close()
    usual = {name: statistics.median(each[name] for each in found) for name in found[0]}
    yield line(kind, "commit, durability process", usual["plain"], usual["process"], 1.1,
               gains=False)  # fmt: skip
    yield line(kind, "commit, durability commit, beyond the plain one, in LMDB commits",
               usual["lmdb"] - usual["plain payment"], usual["commit"] - usual["plain payment"],
               1.5 if kind == "postgresql" else math.inf, gains=False)  # fmt: skip
    yield line(kind, "commit, durability commit, two guards against one", usual["one guard"],
               usual["two guards"], 1.15, gains=False)  # fmt: skip


def line(
    kind: str, name: str, without: float, with_guard: float, goal: float, *, gains: bool
) -> Line:
    ratio = without / with_guard if gains else with_guard / without
    met = ratio >= goal if gains else ratio <= goal
    return Line(kind, name, without, with_guard, ratio, f"{'>=' if gains else '<='} {goal:g}", met)


if __name__ == "__main__":
    sys.exit(main())
