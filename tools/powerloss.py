"""Power cuts by the thousand: the code is tools/torture/power_cuts.py."""

from __future__ import annotations

import sys

import find_checkout  # noqa: F401  first: the next import needs it

from tools.torture.power_cuts import main

if __name__ == "__main__":
    sys.exit(main())
