"""Prints pip constraints that pin every requirement of pyproject.toml to its lowest version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
USED = ("cli", "migrations", "plot", "arrow")  # the others are for developers

for requirement in PROJECT["dependencies"] + [each for name in USED for each in EXTRAS[name]]:
    bounded = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
    if bounded is not None:
        print("{}=={}".format(*bounded.groups()))
