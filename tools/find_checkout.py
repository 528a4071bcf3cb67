"""Puts the checkout on the path, so that a script of tools/ finds `bloomstore`, `tests`, `tools`.

Python puts the folder of a script there, not the folder above it. The first import of every script
in tools/ is this one; nothing else under tools/ changes the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
