"""The architecture: each room imports only rooms below it, type-only imports included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bloomstore

ROOT = Path(bloomstore.__file__).parent

# One line per rank, lowest first. A file may import files of its own room and of rooms that stand
# on lines above its own; rooms on one line do not know each other.
RANKS = [
    "errors crash held",
    "theory",
    "hashing",
    "layout",
    "families",
    "kernels",
    "keys",
    "segment",
    "catalog",
    "filters",
    "store.options store.note_names",
    "store.process",
    "store.durable",
    "store.view",
    "store.stats",
    "store.write",
    "store.care",
    "store.notes",
    "store.filter",
    "store.store",
    "store.open",
    "store.__init__",
    "__init__",
    "rebuild",
    "sql.sqlalchemy_private",
    "sql.answer sql.attached sql.listeners",
    "sql.databases",
    "sql.schema",
    "sql.guards",
    "sql.capture sql.outbox",
    "sql.ask",
    "sql.build",
    "sql.plugin",
    "sql.engine_url sql.alembic",
    "sql.__init__",
    "cli.support",
    "cli.commands",
    "cli.main cli.__init__",
    "__main__",
]
RANK = {room: rank for rank, rooms in enumerate(RANKS) for room in rooms.split()}
DIVIDED = {"sql", "store", "cli"}  # layers whose rooms have ranks of their own
# Modules that exactly one place may import.
ONLY_IN = {"lmdb": "catalog", "mmap": "segment/mapping.py", "sqlalchemy": "sql", "mmh3": "hashing"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


ALL = {dotted(path) for path in modules()}


def room_of(name: str) -> str:
    """The room of a module, given by its dotted name below the package."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] in DIVIDED else parts[0]


def imported(path: Path) -> set[str]:
    """Dotted names below the package of all modules that the file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bloomstore":
            for alias in node.names:
                names.add(_module(f"{node.module}.{alias.name}".partition(".")[2]))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top, _, below = alias.name.partition(".")
                if top == "bloomstore":
                    names.add(_module(below))
    return names


def _module(name: str) -> str:
    """The module that an import of this name reads: a submodule, or the module around a name."""
    while name and name not in ALL and f"{name}.__init__" not in ALL:
        name = name.rpartition(".")[0]
    if not name:
        return "__init__"
    return name if name in ALL else f"{name}.__init__"


def wrong_imports() -> list[str]:
    return sorted(
        f"{dotted(path)} -> {other}"
        for path in modules()
        for other in imported(path)
        if is_upward(room_of(dotted(path)), room_of(other))
    )


def is_upward(own: str, other: str) -> bool:
    return own != other and RANK[other] >= RANK[own]


def test_every_module_is_in_a_room_with_a_rank() -> None:
    assert {room_of(dotted(path)) for path in modules()} - set(RANK) == set()


def test_no_module_imports_a_room_of_equal_or_higher_rank() -> None:
    assert wrong_imports() == []


def test_an_import_upwards_would_be_noticed() -> None:
    assert is_upward("sql.guards", "sql.capture")
    assert is_upward("sql.capture", "sql.outbox")
    assert not is_upward("sql.ask", "sql.capture")
    assert room_of("sql.ask.session") == "sql.ask"
    assert imported(ROOT / "cli" / "main.py") >= {"cli.commands.add", "errors"}


@pytest.mark.parametrize(("module", "only"), ONLY_IN.items())
def test_lmdb_mmap_and_the_rest_are_imported_in_one_place(module: str, only: str) -> None:
    for path in modules():
        names = {
            alias.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        if any(name.split(".")[0] == module for name in names):
            place = path.relative_to(ROOT).as_posix()
            assert place.startswith(only), f"{place} imports {module}, only {only} may"


KINDS_OF_DATABASE = {"sqlite", "postgresql", "mysql", "mariadb"}


def tells_databases_apart(source: str) -> list[int]:
    """Lines that compare, or look something up by, the name of a dialect or a kind of database."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.Subscript | ast.Dict):
            inside = list(ast.walk(node))
            is_named = any(
                isinstance(each, ast.Attribute) and ast.unparse(each).endswith("dialect.name")
                for each in inside
            )
            is_kind = any(
                isinstance(each, ast.Constant) and each.value in KINDS_OF_DATABASE
                for each in inside
            )
            # The form of a guard's keys has the name in its record, and compares nothing.
            is_named = is_named and not isinstance(node, ast.Dict)
            if is_named or is_kind:
                lines.append(node.lineno)
    return lines


def test_only_databases_tells_kinds_of_database_apart() -> None:
    for path in (ROOT / "sql").rglob("*.py"):
        if path.parent.name != "databases":
            assert tells_databases_apart(path.read_text()) == [], path


def test_a_comparison_of_dialects_would_be_noticed() -> None:
    assert tells_databases_apart('x = engine.dialect.name == "sqlite"') == [1]
    assert tells_databases_apart('x = dialect.name in ("mysql", "mariadb")') == [1]
    assert tells_databases_apart("x = BY[self.dialect.name]") == [1]
    assert tells_databases_apart('x = {"postgresql": 1}') == [1]
    assert tells_databases_apart("x = Text(dialect.name)") == []


def test_no_file_is_too_long_for_one_idea() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert {str(path): lines for path, lines in lengths.items() if lines > 450} == {}
