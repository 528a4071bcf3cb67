"""The processes that hold a lock on a file, for the message after a wait that timed out."""

from __future__ import annotations

import os
from pathlib import Path


def holders(*files: Path) -> str:
    """The processes that have locked one of these, as Linux lists them; "" if it names none."""
    inodes = {str(file.stat().st_ino) for file in files if file.exists()}
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    # 1: POSIX  ADVISORY  WRITE 4711 08:01:131 128 128; lines of waiting processes have an arrow.
    fields = [line.split() for line in lines if "->" not in line]
    processes = {int(each[4]) for each in fields if each[5].rpartition(":")[2] in inodes}
    return ", ".join(_named(process) for process in sorted(processes) if process > 0)


def _named(process: int) -> str:
    if process == os.getpid():
        return f"process {process} (this one)"
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        shown = b" ".join(words).decode(errors="replace").strip()
    except OSError:
        shown = ""
    return f"process {process} ({shown[:100]})" if shown else f"process {process}"
