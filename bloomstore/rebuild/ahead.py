"""Reading ahead: the next batch is read in a thread while the one before is added.

Drivers wait for their server, and kernels let other threads run: together they take about the time
of the slower one. The source runs in that one thread from its first step to its last.
"""

from __future__ import annotations

import collections.abc as abc
from concurrent.futures import ThreadPoolExecutor

from bloomstore.rebuild.source import Batch


def ahead(batches: abc.Generator[Batch]) -> abc.Iterator[Batch]:
    """The same batches. Leaving it early closes the source, in its thread."""
    with ThreadPoolExecutor(1, "bloomstore source") as thread:
        try:
            coming = thread.submit(next, batches, None)
            while (batch := coming.result()) is not None:
                coming = thread.submit(next, batches, None)
                yield batch
        finally:
            thread.submit(batches.close).result()
