"""The checkout, and the environment of the processes that tests and tools start.

Tests and tools import each other's support as `tests.…` and `tools.…`: the checkout must be on the
path of every process, and `python -m pytest` in the checkout is not how workers are started.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """This process's environment with the checkout on the path of Python, and more variables."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | more
