"""Sessions with guards against sessions without: the code is tools/bench/sql.py."""

from __future__ import annotations

import sys

import find_checkout  # noqa: F401  first: the next import needs it

from tools.bench.sql import main

if __name__ == "__main__":
    sys.exit(main())
