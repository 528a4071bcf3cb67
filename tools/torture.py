"""Kills, damage and interrupts: the code is tools/torture/main.py."""

from __future__ import annotations

import sys

import find_checkout  # noqa: F401  first: the next import needs it

from tools.torture.main import main

if __name__ == "__main__":
    sys.exit(main())
