"""`bloomstore ARGUMENTS` in a process of its own, with small batches: python worker.py ROWS ...

LEAST_KEYS in the environment says how many keys are so many that they are gathered in memory.
"""

from __future__ import annotations

import os
import sys

from bloomstore.cli import main
from bloomstore.rebuild import files, text
from bloomstore.sql import scan
from bloomstore.store import bulk

if __name__ == "__main__":
    rows = int(sys.argv[1])
    files.BATCH_ROWS = scan.BATCH_ROWS = rows
    text._SOURCE_BYTES = 16 * rows
    bulk.LEAST_KEYS = int(os.environ.get("LEAST_KEYS", bulk.LEAST_KEYS))
    sys.exit(main(sys.argv[2:]))
