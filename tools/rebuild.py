"""`bloomstore rebuild STORE NAME --from SOURCE` where only a checkout is, for cron say."""

from __future__ import annotations

import sys

import find_checkout  # noqa: F401  first: the next import needs it

from bloomstore.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", *sys.argv[1:]]))
