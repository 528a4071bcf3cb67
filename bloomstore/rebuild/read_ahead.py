"""Reading ahead: the next item is read in a thread while the one before is added.

Drivers wait for their server, and kernels let other threads run: together they take about the time
of the slower one. Each generator runs in one thread of its own from its first step to its last, and
is at most one item ahead: that bounds the memory.
"""

from __future__ import annotations

import collections.abc as abc
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: abc.Generator[Item]) -> abc.Generator[Item]:
    """The same items. Leaving it early closes the generator, in its thread."""
    for _, item in together([items]):
        yield item


def together(generators: abc.Sequence[abc.Generator[Item]]) -> abc.Generator[tuple[int, Item]]:
    """The items of all generators as they come, each with the index of its generator.

    The first error ends all. Whatever ends it, every generator is closed, in its thread.
    """
    with ExitStack() as stack:
        threads = [
            stack.enter_context(ThreadPoolExecutor(1, "bloomstore source")) for _ in generators
        ]

        def step(place: int) -> Future[Item | None]:
            return threads[place].submit(next, generators[place], None)

        try:
            coming = {step(place): place for place in range(len(generators))}
            while coming:
                for future in wait(coming, return_when=FIRST_COMPLETED).done:
                    place, item = coming.pop(future), future.result()
                    if item is not None:
                        coming[step(place)] = place
                        yield place, item
        finally:
            closing = [
                thread.submit(generator.close)
                for thread, generator in zip(threads, generators, strict=True)
            ]
            for closed in closing:
                closed.result()
