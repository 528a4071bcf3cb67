"""How a kind of database compares, isolates, waits and identifies itself.

    contract.py        the questions, and the facts read from a live table
    sqlite.py          their answers for SQLite
    postgresql.py      ... for PostgreSQL
    mysql.py           ... for MariaDB and MySQL
    sqlite_tables.py        facts of a table of SQLite
    postgresql_tables.py    ... of PostgreSQL
    mysql_tables.py         ... of MariaDB and MySQL
    canonical.py       canonical keys: equal for the database, equal as keys
    isolation.py       isolation levels of connections
    drivers.py         values on their way through the driver
    queries.py         parts of queries that all kinds share
    outbox_names.py    names in the statements that make an outbox
    snapshot_sql.py    PostgreSQL's expressions about a snapshot
    lock_holders.py    processes that hold a lock on a file
    sql_text.py        effects of SQL text
    tokens.py          the tokens of SQL text
    harmless.py        functions and settings that change nothing

Each kind is a module with the functions of the protocol Database. Other kinds are unknown, and
their guards answer UNKNOWN.
"""

from __future__ import annotations

from sqlalchemy.engine import Dialect

from bloomstore.sql.databases import mysql, postgresql, sqlite
from bloomstore.sql.databases.contract import ColumnFacts, Database, TableFacts, Traits

_BY_DIALECT: dict[str, Database] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mysql": mysql,
    "mariadb": mysql,
}
KINDS = ", ".join(_BY_DIALECT)  # for messages
_CAUTIOUS = Traits(snapshot_level=None)


def is_known(dialect: Dialect) -> bool:
    """Whether guards know this kind of database."""
    return dialect.name in _BY_DIALECT


def database_of(dialect: Dialect) -> Database:
    """The kind of database behind a dialect. Raises KeyError if it is not known."""
    return _BY_DIALECT[dialect.name]


def traits_of(dialect: Dialect) -> Traits:
    """The traits of this kind of database; of an unknown kind, the most cautious ones."""
    database = _BY_DIALECT.get(dialect.name)
    return _CAUTIOUS if database is None else database.TRAITS


__all__ = [
    "KINDS",
    "ColumnFacts",
    "Database",
    "TableFacts",
    "Traits",
    "database_of",
    "is_known",
    "traits_of",
]
