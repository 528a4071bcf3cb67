"""A store without a problem."""

from __future__ import annotations

from pathlib import Path

import bloomstore


def assert_sound(path: Path) -> None:
    """The store at this path has no problem."""
    with bloomstore.open(path, create=False) as store:
        assert [str(problem) for problem in store.check()] == []
