"""The databases of the guards' tests, and an Alembic environment as an application has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from bloomstore.sql.schema import migrate
from tests.sql.conftest import kind, running, store, url
from tests.sql.support import servers

__all__ = ["kind", "running", "store", "url"]

ENV = """
import bloomstore.sql.alembic
from alembic import context

def run(**how):
    context.configure(**how)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes
if context.is_offline_mode():
    run(dialect_name=given["engine"].dialect.name)
else:
    with given["engine"].connect() as connection:
        run(
            connection=connection,
            target_metadata=given["metadata"],
            include_object=bloomstore.sql.alembic.include_object,
        )
"""
REVISION = '''
"""{name}"""
from alembic import op
import sqlalchemy as sa

revision, down_revision, branch_labels, depends_on = {name!r}, {after!r}, None, {depends!r}

def upgrade():
    {up}

def downgrade():
    {down}
'''


class Application:
    """Revisions of its own, with ours as a branch."""

    def __init__(self, folder: Path, engine: sa.Engine) -> None:
        self.versions = folder / "versions"
        self.versions.mkdir(parents=True)
        (folder / "env.py").write_text(ENV)
        (folder / "script.py.mako").write_text((migrate.location() / "script.py.mako").read_text())
        self.config = Config()
        self.config.set_main_option("script_location", str(folder))
        for name in ("path_separator", "version_path_separator"):  # before Alembic 1.16
            self.config.set_main_option(name, "os")
        own = migrate.location() / "versions"
        self.config.set_main_option("version_locations", f"{self.versions}{os.pathsep}{own}")
        self.config.attributes.update(engine=engine, metadata=sa.MetaData())

    def revise(
        self, name: str, up: str, down: str, *, after: str | None = None, depends: str | None = None
    ) -> None:
        """Writes a revision."""
        text = REVISION.format(name=name, up=up, down=down, after=after, depends=depends)
        (self.versions / f"{name}.py").write_text(text)

    def __call__(self, what: str, *given: Any, **named: Any) -> Any:
        """Runs a command of Alembic."""
        return getattr(command, what)(self.config, *given, **named)


@pytest.fixture
def engine(url: sa.URL) -> Iterator[sa.Engine]:
    """An empty database."""
    engine = sa.create_engine(url)
    servers.empty(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def application(engine: sa.Engine, tmp_path: Path) -> Application:
    return Application(tmp_path / "application", engine)
