"""Which connections commit by themselves."""

from __future__ import annotations

from typing import Any

from bloomstore.sql.databases.isolation import is_autocommit
from tests.sql.support.kinds import only_sqlite


@only_sqlite
def test_the_driver_of_sqlite_may_autocommit_in_a_way_of_its_own(engine) -> None:
    """As sqlite3.connect(..., autocommit=True) does from Python 3.12 on."""

    class Autocommits:
        isolation_level = ""
        autocommit: Any = True

    class Lent:
        dbapi_connection = Autocommits()

    class Connects:
        dialect = engine.dialect
        connection = Lent()

    assert is_autocommit(Connects())  # type: ignore[arg-type]
    Autocommits.autocommit = -1  # as before
    assert not is_autocommit(Connects())  # type: ignore[arg-type]
