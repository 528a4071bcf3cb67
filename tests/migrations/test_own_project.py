"""The commands of migrations/README.md, in a project as `alembic init` makes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from bloomstore.sql.schema import migrate

README = (migrate.location() / "README.md").read_text()
MODELS = """
import sqlalchemy as sa
from bloomstore.sql import Guard
import bloomstore.sql.alembic
metadata = sa.MetaData()
email = sa.Column("email", sa.String(50), info={"bloomstore": Guard(feed="outbox", staleness=5)})
sa.Table("users", metadata, sa.Column("id", sa.Integer, primary_key=True), email)
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What `alembic init` makes, with the lines of the README and a model."""
    alembic(tmp_path, "init alembic")
    ini = tmp_path / "alembic.ini"
    text = re.sub(
        r"^(path_separator|sqlalchemy.url) = .*$", "", ini.read_text(), flags=re.MULTILINE
    )
    own = block("ini") + f"sqlalchemy.url = sqlite:///{tmp_path}/app.db\n"
    ini.write_text(text.replace("[alembic]\n", f"[alembic]\n{own}"))
    (tmp_path / "models.py").write_text(MODELS)
    env = tmp_path / "alembic" / "env.py"
    given = "target_metadata=models.metadata, include_object=bloomstore.sql.alembic.include_object"
    text = env.read_text().replace("target_metadata=target_metadata", given)
    env.write_text(f"import bloomstore.sql.alembic\nimport models\n{text}")
    return tmp_path


def alembic(folder: Path, arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *arguments.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_branch_and_revisions_of_ones_own_go_together(project: Path) -> None:
    lines = [line.partition(" #")[0] for line in block("sh").splitlines()]
    upgrade, first, more, outbox = (line.removeprefix("alembic ") for line in lines)
    shipped = sorted(path.name for path in (migrate.location() / "versions").glob("*.py"))
    assert alembic(project, "heads").startswith("bloomstore_0002 (bloomstore)")
    alembic(project, upgrade)
    alembic(project, first)
    alembic(project, upgrade)
    versions = project / "alembic" / "versions"
    for command in (more, outbox):
        (newest,) = re.findall(r"^([0-9a-f]{12}) ", alembic(project, "heads"), re.MULTILINE)
        alembic(project, re.sub("--head [0-9a-f]{12}", f"--head {newest}", command))
        if command is outbox:
            (revision,) = versions.glob("*_outbox.py")
            made = 'op.create_guard_outbox("users", ["email"])'
            revision.write_text(revision.read_text().replace("pass", made, 1))
        alembic(project, upgrade)
    assert len(list(versions.glob("*.py"))) == 3
    assert shipped == sorted(path.name for path in (migrate.location() / "versions").glob("*.py"))
    url = f"sqlite:///{project}/app.db"
    assert migrate.is_elsewhere(url)
    assert list(migrate.check(url)) == []
    engine = sa.create_engine(url)
    assert "users" in sa.inspect(engine).get_table_names()
    engine.dispose()
