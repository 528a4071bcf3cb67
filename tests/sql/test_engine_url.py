"""The engine plugin that a URL names."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql import Answer, plugin_of
from tests.sql.support.models import Base, User


def test_a_url_loads_the_plugin_and_finds_guards_on_tables(tmp_path: Path, engine) -> None:
    query = {"plugin": "bloomstore", "bloomstore_path": str(tmp_path / "f")}
    named = sa.create_engine(engine.url.update_query_dict(query))
    plugin = plugin_of(named)
    with named.begin() as connection:
        connection.execute(sa.insert(User).values(email="a@x"))
    assert "users.email" in plugin.guards
    assert plugin.probe(User.email, "a@x") == Answer.UNKNOWN
    plugin.build(named)
    with named.begin() as connection:
        connection.execute(sa.insert(User).values(email="b@x"))
    assert plugin.probe(User.email, "b@x") is Answer.MAYBE
    assert plugin.probe(User.email, "c@x") is Answer.ABSENT
    plugin.unlisten()
    plugin.store.close()
    named.dispose()
    assert Base.metadata


def test_a_url_without_a_path_says_so() -> None:
    with pytest.raises(SpecError, match="bloomstore_path"):
        sa.create_engine("sqlite://?plugin=bloomstore")
    with pytest.raises(SpecError, match="does not name"):
        plugin_of(sa.create_engine("sqlite://"))
    assert bloomstore.__version__
