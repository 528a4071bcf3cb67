"""What the plugin must know of each kind of database, read from the live one.

One module per kind; each has the same functions (the protocol Database below). Kinds that are
not listed are unknown: their guards answer UNKNOWN.
"""

from __future__ import annotations

from bloomstore.sql.databases import mysql, postgresql, sqlite
from bloomstore.sql.databases.contract import ColumnFacts, Database, TableFacts

BY_DIALECT: dict[str, Database] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "mysql": mysql,
    "mariadb": mysql,
}

__all__ = ["BY_DIALECT", "ColumnFacts", "Database", "TableFacts"]
