"""The map of a room, in the docstring of its `__init__`, names all files of its folder, no others.

An entry is a line: the name of a file, or of a folder with its slash, two or more spaces, and a few
words. Four spaces stand before it, unless ruff has moved the whole docstring to the left:

    chain.py     the stages of one filter as one object
    support/     options and tables that several commands share
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

ENTRY = re.compile(r"^(?: {4})?(\w+(?:\.\w+|/)) {2,}\S", re.MULTILINE)
SOURCES = {".py", ".pyi", ".pyx", ".pxi"}
ROOMS = sorted(
    file.parent.relative_to(ROOT)
    for top in ("bloomstore", "tests", "tools")
    for file in (ROOT / top).rglob("__init__.py")
)


def docstring(room: Path) -> str:
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()), clean=False)
    assert text, f"{room}/__init__.py does not say what the room is for"
    return text


def contents(room: Path) -> set[str]:
    """Its sources and its folders with sources, as a map names them."""
    folder = ROOT / room
    files = {file.name for file in folder.iterdir() if file.suffix in SOURCES}
    folders = {
        f"{inner.name}/"
        for inner in folder.iterdir()
        if inner.is_dir() and any(file.suffix in SOURCES | {".h"} for file in inner.rglob("*"))
    }
    return (files | folders) - {"__init__.py"}


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_the_map_of_a_room_names_what_is_in_it(room: Path) -> None:
    text = docstring(room)
    entries = ENTRY.findall(text)
    assert sorted(set(entries)) == sorted(entries), "a file is listed twice"
    assert set(entries) == contents(room)


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_a_room_is_one_sentence(room: Path) -> None:
    first = docstring(room).splitlines()[0]
    assert first.endswith((".", ":"))
    assert first != "Room."
