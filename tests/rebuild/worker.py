"""`bloomstore ARGUMENTS` in a process of its own, with small batches: python worker.py ROWS ..."""

from __future__ import annotations

import sys

from bloomstore.cli import main
from bloomstore.rebuild import files, text
from bloomstore.sql import scan

if __name__ == "__main__":
    rows = int(sys.argv[1])
    files.BATCH_ROWS = scan.BATCH_ROWS = rows
    text._SOURCE_BYTES = 16 * rows
    sys.exit(main(sys.argv[2:]))
