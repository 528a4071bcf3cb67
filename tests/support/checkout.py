"""The checkout, and the environment of the processes that tests and tools start.

Shared code is imported as `tests...` and `tools...`, so the checkout must be on the path of every
process. pytest puts it there for the tests (pyproject.toml); `environment` does so for workers.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """This process's environment with the checkout on the path of Python, and more variables."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | more
