"""`python -m bloomstore`: the command line without the installed script."""

import sys

from bloomstore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
