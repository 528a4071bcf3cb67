"""What registers of 512 bits gain for bulk calls: the same calls with them and without, in turn.

    python -m tools.compare.registers [--keys 1e6] [--rounds 9]

Fingerprints, lookups and adds of integers (murmur_avx512.h) and of texts of 24 characters
(text_avx512.h), by one thread, in processor time per key: the least of all rounds.

Exit status: 0, or 1 where the kernels are not compiled or the processor has no such registers.
"""

from __future__ import annotations

import argparse
import collections.abc as abc
import os
import sys
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np

WIDE, NARROW = 512, 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=lambda text: int(float(text)), default=10**6)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    os.environ["BLOOMSTORE_THREADS"] = "1"
    try:
        from bloomstore.kernels import compiled
    except ImportError:
        print("the kernels are not compiled here", file=sys.stderr)
        return 1
    if compiled.use_width(WIDE) < WIDE:
        print(f"this processor has no registers of {WIDE} bits", file=sys.stderr)
        return 1
    print(f"{'ns per key':<20}{'without':>9}{'with':>9}{'ratio':>8}")
    for name, call in calls(options.keys):
        least = {NARROW: float("inf"), WIDE: float("inf")}
        for _ in range(options.rounds):
            for width in least:
                compiled.use_width(width)
                began = time.process_time()
                call()
                least[width] = min(least[width], time.process_time() - began)
        without, wide = (1e9 * least[width] / options.keys for width in (NARROW, WIDE))
        print(f"{name:<20}{without:>9.1f}{wide:>9.1f}{wide / without:>8.2f}")
    return 0


def calls(keys: int) -> abc.Iterator[tuple[str, abc.Callable[[], Any]]]:
    """What is measured, by name."""
    import bloomstore
    from bloomstore import kernels

    integers = np.arange(keys, dtype=np.int64)
    texts = [f"user-{number:019d}" for number in range(keys)]
    absent: dict[str, Any] = {
        "int": integers + 10**9,
        "str": [f"none-{number:019d}" for number in range(keys)],
    }
    yield "fingerprints int", lambda: kernels.fingerprints_of_int64(integers, 0)
    yield "fingerprints str", lambda: kernels.fingerprints_of_list(texts, 0)
    with (
        tempfile.TemporaryDirectory() as folder,
        bloomstore.open(f"{folder}/store", durability="process") as store,
    ):
        for kind, present in (("int", integers), ("str", texts)):
            seen = store.create(kind, bloomstore.Fixed(capacity=keys, target_error=0.01))
            seen.add_many(present)
            yield f"present {kind}", partial(seen.may_contain_many, present)
            yield f"absent {kind}", partial(seen.may_contain_many, absent[kind])
            yield f"add, known {kind}", partial(seen.add_many, present)


if __name__ == "__main__":
    sys.exit(main())
