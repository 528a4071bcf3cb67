"""One key at a time: encode, hash, look at the bits, without passing through the layers.

The twin of the compiled class of the same name. A handle that inherits from it does not redefine
`__contains__`; it keeps `_fast_generation`, `_words` and the vectors up to date and answers what
the fast path cannot: `_contains_slowly` for everything out of the ordinary (a new generation, a
closed store, a forked child, a batch, a filter in doubt).

Invariants
  1. The generation is compared once, before the first bit is looked at.
  2. While `_fast_generation` equals the word, a key whose bits are not all set is absent.
"""

from __future__ import annotations

import collections.abc as abc

import numpy as np
from numpy.typing import NDArray

from bloomstore.hashing.addresses import bit_addresses_of_one
from bloomstore.keys import Key, fingerprint
from bloomstore.spec.geometry import Geometry

# No catalog ever gets here by counting: it stands for "ask slowly".
NEVER = (1 << 64) - 1


class OneKey:
    """Lookups of single keys on a set of vectors, valid for one generation."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fast_generation = NEVER
        self._words: memoryview = memoryview(bytes(8)).cast("Q")
        self._vectors: list[tuple[memoryview, Geometry]] = []

    def _point_at(
        self,
        words: memoryview,
        vectors: abc.Sequence[NDArray[np.uint8]],
        geometries: abc.Sequence[Geometry],
    ) -> None:
        """Takes the vectors to ask, newest first, and the page with the generation word."""
        self._fast_generation = NEVER
        self._words = words
        self._vectors = [
            (vector.data, geometry) for vector, geometry in zip(vectors, geometries, strict=True)
        ]

    def __contains__(self, key: Key) -> bool:
        """Whether the key may have been added. False is certain."""
        if self._words[0] != self._fast_generation:
            return self._contains_slowly(key)
        found = fingerprint(key, self._seed)
        for vector, geometry in self._vectors:
            for address in bit_addresses_of_one(geometry, found):
                if not vector[address >> 3] >> (address & 7) & 1:
                    break
            else:
                return True
        return False

    def _contains_slowly(self, key: Key) -> bool:
        raise NotImplementedError
