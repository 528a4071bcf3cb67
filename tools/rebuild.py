"""`bloomstore rebuild`, from a checkout: for cron, and for machines where nothing is installed.

python tools/rebuild.py STORE NAME --from SOURCE
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bloomstore.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", *sys.argv[1:]]))
