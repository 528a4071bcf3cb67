"""Named points at which a test can kill the process, at each step that a crash could tear.

`crash_point("growth: file created")` does nothing unless the environment variable
BLOOMSTORE_CRASH_AT names it when the package is imported; then the process dies there by SIGKILL,
at the n-th time for "name#n". POINTS is the complete list, so that a test can visit all of them.
"""

from __future__ import annotations

import os
import signal

POINTS: tuple[str, ...] = (
    "create store: folder made",
    "create store: segments folder made",
    "create store: catalog renamed",
    "create store: catalog in place",
    "new file: tombstone committed",
    "new file: created",
    "new file: synced",
    "generation: committed",
    "generation: word set",
    "add: journal committed",
    "add: applied",
    "add: applied word set",
    "process add: marked dirty",
    "process add: bits set",
    "checkpoint: rows applied again",
    "checkpoint: memory synced",
    "checkpoint: file synced",
    "checkpoint: catalog committed",
    "seal: next stage published",
    "seal: marked",
    "bulk load: stage published",
    "drop: file unlinked",
    "drop: tombstones removed",
    "recovery: words set",
    "recovery: row applied",
    "recovery: done",
    "rebuild: begun",
    "rebuild: batch added",
    "rebuild: position noted",
    "rebuild: switched",
)

_wanted, _, _count = os.environ.get("BLOOMSTORE_CRASH_AT", "").partition("#")
_left = int(_count or 1)

if _wanted and _wanted not in POINTS:
    raise ValueError(f"BLOOMSTORE_CRASH_AT: no crash point named {_wanted!r}")


def crash_point(name: str) -> None:
    """Dies here if this is the point that the environment names."""
    global _left
    if name == _wanted:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
