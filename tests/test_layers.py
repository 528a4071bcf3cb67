"""The architecture: each layer imports only those below it."""

from __future__ import annotations

import ast
from pathlib import Path

import bloomstore

LAYERS = [
    "errors crash held",
    "theory",
    "spec",
    "hashing",
    "kernels",
    "keys",
    "segment",
    "catalog",
    "filters",
    "store",
    "rebuild",
    "sql",
    "cli",
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
ROOT = Path(bloomstore.__file__).parent
# Modules that exactly one place may import.
ONLY_IN = {"lmdb": "catalog", "mmap": "segment/mapping.py", "sqlalchemy": "sql", "mmh3": "hashing"}


def imports(path: Path) -> set[str]:
    """Full names of everything that the file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return found


def modules() -> list[tuple[Path, str]]:
    """All modules below the package, with the layer they belong to."""
    return [
        (path, path.relative_to(ROOT).parts[0].removesuffix(".py"))
        for path in sorted(ROOT.rglob("*.py"))
    ]


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer for _, layer in modules()} - set(RANK) == {"__init__", "__main__"}


def test_no_module_imports_a_higher_layer() -> None:
    for path, layer in modules():
        if layer not in RANK:
            continue
        below = {
            name.split(".")[1]
            for name in imports(path)
            if name.startswith("bloomstore.") and name.split(".")[1] in RANK
        }
        wrong = {name for name in below if name != layer and RANK[name] >= RANK[layer]}
        assert not wrong, f"{path} imports upward: {sorted(wrong)}"


def test_lmdb_mmap_and_the_rest_are_imported_in_one_place() -> None:
    for path, _ in modules():
        place = path.relative_to(ROOT).as_posix()
        for module, only in ONLY_IN.items():
            if any(name.split(".")[0] == module for name in imports(path)):
                assert place.startswith(only), f"{place} imports {module}, only {only} may"


def test_no_file_is_too_long_for_one_idea() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path, _ in modules()}
    assert {str(path): lines for path, lines in lengths.items() if lines > 450} == {}
