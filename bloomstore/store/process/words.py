"""The words of a store: numbers that its processes share in memory.

They are the first page of the file `lock`, which every process maps:

    word  name        meaning
       0  generation  the catalog's generation; readers reload their stages when it moved
       1  applied     the last journal sequence whose bits are all set
       2  wanted      1 while a process waits for the writer lock
       3  applying    number of the segment that a `process` add is changing, else 0
       4  boot        which boot of the machine the words belong to
       5  committed   number of the last commit of the catalog (catalog/witness.py)

All words but `committed` are hints of this boot; the catalog holds the truth. Words are read and
written as aligned 64-bit units. Ordering between processes is left to whatever message tells the
other process that a key was added.

Not here: the flock on the same file (writer_lock.py), setting words right after a crash
(durable/recovery.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from bloomstore.segment.mapping import allocate, open_file, sync_descriptor

LOCK_BYTES = 4096
GENERATION = 0
APPLIED = 1
WANTED = 2
APPLYING = 3
BOOT = 4
COMMITTED = 5
WORDS = 8


def make_lock_files(folder: Path) -> None:
    """Creates `lock`, with the page of words, and `users` in a new store, durably."""
    for name, length in (("lock", LOCK_BYTES), ("users", 0)):
        descriptor = open_file(folder / name, os.O_CREAT | os.O_RDWR)
        try:
            if length:
                allocate(descriptor, length)
            sync_descriptor(descriptor)
        finally:
            os.close(descriptor)
