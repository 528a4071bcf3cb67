"""`bloomstore ARGUMENTS` in a process of its own, with small batches: `python worker.py ROWS ...`.

LEAST_KEYS in the environment says from how many keys on they are gathered in memory.
"""

from __future__ import annotations

import os
import sys

from bloomstore.cli.main import main
from bloomstore.rebuild import files, text_source
from bloomstore.sql.build import table_source
from bloomstore.store.write import bulk_load

if __name__ == "__main__":
    rows = int(sys.argv[1])
    for module in (files, table_source):
        vars(module)["BATCH_ROWS"] = rows
    text_source._SOURCE_BYTES = 16 * rows
    bulk_load.LEAST_KEYS = int(os.environ.get("LEAST_KEYS", bulk_load.LEAST_KEYS))
    sys.exit(main(sys.argv[2:]))
