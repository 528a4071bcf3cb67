"""The walks of docs/reading-the-source.md: each step names a file and a function in it.

A step is a line of this form; whatever follows the second name is for the reader:

    - `bloomstore/store/filter.py`: `Filter._find` asks the chain of the live stages
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

STEP = re.compile(r"- `([\w/.]+)`: `([\w.]+)`(?: |$)")
BEGINS_LIKE_A_STEP = re.compile(r"\s*(?:[-*]|\d+\.) `\w+/")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a walk."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def steps_of(document: Path) -> list[Step]:
    """All steps of all walks; a line that looks like one and is not is an error."""
    if not document.exists():
        return []
    steps = []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if step := STEP.match(line):
            steps.append(Step(*step.groups()))
        elif BEGINS_LIKE_A_STEP.match(line):
            raise ValueError(f"{document}:{number}: expected - `file`: `name` words, got {line!r}")
    return steps


def defines(file: Path, name: str) -> bool:
    """Whether a source has this function, class or method (`Class.method`).

    C and Cython are not parsed: there the last part of the name must be a word of the file that is
    followed by what a definition has.
    """
    if file.suffix != ".py":
        word = re.escape(name.rpartition(".")[2])
        return bool(re.search(rf"^[^\n#/*]*\b{word}\b *[(:]", file.read_text(), re.MULTILINE))
    body = ast.parse(file.read_text()).body
    for part in name.split("."):
        inner = [node for node in body if getattr(node, "name", None) == part]
        if not inner:
            return False
        body = getattr(inner[0], "body", [])
    return True
