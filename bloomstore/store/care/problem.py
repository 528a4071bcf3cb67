"""One thing that `check` found wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where. `filter_name` is None for what belongs to the store as a whole."""

    path: Path
    offset: int
    what: str
    filter_name: str | None = None

    def __str__(self) -> str:
        owner = f"filter {self.filter_name!r}: " if self.filter_name is not None else ""
        return f"{owner}{self.path}: at byte {self.offset}: {self.what}"
