"""How many threads one call of a kernel may use.

BLOOMSTORE_THREADS sets the number; the default is one for each processor that this process may run
on, at most four: more threads would wait for the same memory. The compiled kernels divide lookups
and fingerprints by keys, adds by lines or slices of the vector; the numpy kernels use one thread.
Results never depend on the number.

Not here: how the work is divided (c/threads.h, c/insert_threads.h).
"""

from __future__ import annotations

import os
from typing import Final

from bloomstore.errors import SpecError

_MOST_THREADS: Final = 4

# Keys for each thread below which another one does not pay: it takes 25 us to begin and to end.
# 16384 keys take 120 to 180 us to insert, 120 to ask for, 60 (an array) to 190 (strings) to hash.
LEAST_KEYS: Final = 16384


def allowed_threads(setting: str) -> int:
    """The number of threads that this setting asks for; "" is the default."""
    if not setting:
        available = getattr(os, "sched_getaffinity", None)
        processors = len(available(0)) if available is not None else os.cpu_count() or 1
        return min(_MOST_THREADS, processors)
    if not setting.isdecimal() or int(setting) < 1:
        raise SpecError(f"BLOOMSTORE_THREADS must be a positive number, got {setting!r}")
    return int(setting)


THREADS = allowed_threads(os.environ.get("BLOOMSTORE_THREADS", ""))


def threads_for(keys: int) -> int:
    """How many threads this many keys are worth, at least one."""
    return max(1, min(THREADS, keys // LEAST_KEYS))
