"""Stores in memory where there is a file system for it: bits are measured here, not disks.

A full suite makes some thousand filters; the syncs of each cost 10 ms on a busy disk. What a
store keeps over a crash is tested elsewhere (tests/faults), on real files.
"""

from __future__ import annotations

import collections.abc as abc
import contextlib
import tempfile
import warnings
from pathlib import Path

import bloomstore

_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def quick_folder() -> abc.Iterator[Path]:
    """A folder for stores, removed at the end."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def open_quietly(
    path: Path, *, read_only: bool = False, durability: bloomstore.Durability = "commit"
) -> bloomstore.Store:
    """Opens a store without the warning that it ends with the machine's uptime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return bloomstore.open(path, read_only=read_only, durability=durability)
