"""Puts the checkout on the path: scripts in tools/ import `bloomstore`, `tests` and `tools`.

Python puts the folder of a script on the path, not the folder above it. This is the first import of
every script in tools/, and nothing else under tools/ changes the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
