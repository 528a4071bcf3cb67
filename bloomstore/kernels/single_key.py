"""One key at a time: the numpy twin of the compiled class of the same name, without its speed.

A handle inherits from it and answers in `_contains_slowly` and `_add_slowly`, which pass through
the layers. The compiled twin goes straight from the key to the bits, under these conditions:

    lookup  `_fast_generation` equals the generation word
    add     likewise, and no batch is open, and the writer lock is kept and free (Keeper), in the
            tenure in which the handle's filter was marked dirty, and the newest stage has room

Not here: lookups and adds under other conditions (store/filter.py).
"""

from __future__ import annotations

import collections.abc as abc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomstore.layout.contract import Geometry

# No catalog counts as far as this: as a generation it means "ask slowly".
NEVER = (1 << 64) - 1


class Keeper:
    """The state of the writer lock as a single add needs it: kept by this process, and free."""

    def __init__(self) -> None:
        self.is_free = False
        self.adds = 0
        self.tenure = 0


class OneKey:
    """Single lookups and adds of a handle."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fast_generation = NEVER
        self._dirty_tenure = -1
        self._adds_durably = False
        self._batches: dict[Any, Any] = {}  # those that are open, of any thread

    def _point_at(
        self,
        words: memoryview,
        vectors: abc.Sequence[NDArray[np.uint8]],
        geometries: abc.Sequence[Geometry],
    ) -> None:
        """Takes the vectors to ask, newest first, and the page with the generation word."""
        self._fast_generation = NEVER

    def _add_into(
        self,
        keeper: Keeper,
        words: memoryview,
        vector: NDArray[np.uint8],
        geometry: Geometry,
        counts: memoryview,
        number: int,
        most_bits: int,
        most_keys: int,
        shift: int,
    ) -> None:
        """Takes the newest stage for adds: its vector, counts with flags, and limits of both."""

    def _missing_bits(
        self,
        prints: NDArray[np.uint64],
        generation: int,
    ) -> int:
        """How many bits of the newest stage a key would set; -1: this handle cannot say."""
        return -1

    def _set_bits(self, prints: NDArray[np.uint64], generation: int) -> bool:
        """Sets the bits of one key in the newest stage; False: this handle cannot."""
        return False

    def __contains__(self, key: Any) -> bool:
        """Whether the key may have been added. False is certain."""
        return self._contains_slowly(key)

    @property
    def is_quick(self) -> bool:
        """Whether lookups go straight to the bits, which only those of a sound filter do."""
        return False

    def add(self, key: Any) -> bool:
        """Adds a key; True if the filter did not report it before.

        When this returns, every later lookup in every process finds the key, and so does a
        reopened store, to the degree that the filter's durability promises.
        """
        return self._add_slowly(key)

    def _contains_slowly(self, key: Any) -> bool:
        raise NotImplementedError

    def _add_slowly(self, key: Any) -> bool:
        raise NotImplementedError

    def _add_unknown_slowly(self, prints: NDArray[np.uint64], generation: int) -> bool:
        raise NotImplementedError
