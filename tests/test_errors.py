"""Every error that a caller may catch is in bloomstore/errors.py, and has one base class."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import bloomstore
from bloomstore import errors

# Signals between rooms: the room above turns each into an answer or an error of errors.py.
SIGNALS = {
    "bloomstore.sql.databases.canonical.Unclear",
    "bloomstore.sql.databases.contract.StillOpen",
    "bloomstore.sql.schema.registry.Unreadable",
    "bloomstore.sql.build.snapshot.NotWhole",
    "bloomstore.store.write.stage_in_memory.Outgrown",
}


def defined_exceptions() -> dict[str, type[BaseException]]:
    """Every exception class of the package but those of its command line, by its full name."""
    classes = {}
    for module in pkgutil.walk_packages(bloomstore.__path__, "bloomstore."):
        if module.name.startswith(("bloomstore.cli", "bloomstore.__main__")):
            continue
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, BaseException) and kind.__module__ == module.name:
                classes[f"{module.name}.{name}"] = kind
    return classes


def test_errors_are_defined_in_one_file() -> None:
    elsewhere = {name for name in defined_exceptions() if not name.startswith("bloomstore.errors.")}
    assert elsewhere <= SIGNALS


def test_errors_have_one_base_class() -> None:
    for name, kind in defined_exceptions().items():
        if name not in SIGNALS:
            assert issubclass(kind, errors.BloomStoreError), name


def test_public_places_export_the_same_errors() -> None:
    from bloomstore import rebuild, sql

    assert sql.BuildError is errors.BuildError
    assert rebuild.SourceError is errors.SourceError
    assert rebuild.Incomplete is errors.Incomplete
    assert rebuild.RebuildError is errors.RebuildError
