"""The memory that the processes of a torture run share: which keys are added, who dies where.

A run is the life of one writer process, from its fork to its end. It has a number and 32 slots:
slot 0 is its share of the filter "commit", slot 1 its share of the filter "process", and the other
slots are filters of its own. The keys of a slot are numbered from 0, so one number per slot says
which of them are acknowledged:

    intended   raised by the writer before it adds
    acked      raised by the reader once it has read the acknowledgement and found the keys
    dropping   set before a filter is dropped; from then on the filter may be missing
    beats      when the writer last finished an operation; `doing` is the one it is busy with
    orders     where the writer shall die: crash point, visits to skip, operations since the order

Invariants
  1. acked <= intended.
  2. intended is raised before the add begins, so a rebuild that reads it after its own beginning
     knows every key that was not added to both chains.
"""

from __future__ import annotations

import mmap
import time

import numpy as np
from numpy.typing import NDArray

from bloomstore import Durability

SLOTS = 32
FIRST_EXTRA = 2
MAIN: tuple[Durability, ...] = ("commit", "process")


def filter_name(run: int, slot: int) -> str:
    """The filter that a slot's keys are in."""
    return MAIN[slot] if slot < FIRST_EXTRA else f"extra {run} {slot}"


def keys_of(run: int, slot: int, first: int, last: int) -> NDArray[np.int64]:
    """The keys first..last-1 of a slot; no two slots have one in common."""
    return np.arange(first, last, dtype=np.int64) + ((run * SLOTS + slot) << 24)


class Ledger:
    """Shared between the supervisor and everything it forks."""

    def __init__(self, runs: int) -> None:
        self._memory = mmap.mmap(-1, runs * (SLOTS * 12 + 64) + 4096)
        self._at = 0
        self.intended = self._array((runs, SLOTS), np.uint32)
        self.acked = self._array((runs, SLOTS), np.uint32)
        self.dropping = self._array((runs, SLOTS), np.uint8)
        self.created = self._array((runs, SLOTS), np.uint8)
        self.alive = self._array((runs,), np.uint8)
        self.doing = self._array((runs,), np.uint8)
        self.beats = self._array((runs,), np.int64)
        self.longest = self._array((runs,), np.int64)
        self.orders = self._array((runs, 3), np.int64)
        # The last question that the reader answered, lines it read, its yes or no, keys lost;
        # the longest sync that the probe saw lately.
        self.answered = self._array((8,), np.int64)

    def _array(self, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[np.generic]:
        length = int(np.prod(shape)) * np.dtype(kind).itemsize
        found = np.frombuffer(self._memory, kind, int(np.prod(shape)), self._at).reshape(shape)
        self._at += -(-length // 8) * 8
        return found

    def beat(self, run: int) -> None:
        """The writer of this run is alive and has just finished an operation."""
        now = time.monotonic_ns()
        if self.beats[run]:
            self.longest[run] = max(self.longest[run], now - self.beats[run])
        self.beats[run] = now

    def promised(self, name: str) -> list[tuple[int, int]]:
        """Runs and slots whose acknowledged keys must be in this filter."""
        if name in MAIN:
            slot = MAIN.index(name)
            return [(int(run), slot) for run in np.flatnonzero(self.acked[:, slot])]
        _, own_run, own_slot = name.split()
        return [(int(own_run), int(own_slot))]

    def acked_keys(self, name: str) -> NDArray[np.int64]:
        """Every key that must be found in this filter."""
        return _joined(
            keys_of(run, slot, 0, int(self.acked[run, slot])) for run, slot in self.promised(name)
        )

    def intended_keys(self, name: str) -> NDArray[np.int64]:
        """Every key that may be in this filter: the source of a rebuild."""
        if name in MAIN:
            slot = MAIN.index(name)
            places = [(int(run), slot) for run in np.flatnonzero(self.intended[:, slot])]
        else:
            places = self.promised(name)
        return _joined(keys_of(run, slot, 0, int(self.intended[run, slot])) for run, slot in places)

    def extras(self) -> list[str]:
        """Filters of single runs that must exist: created and not being dropped."""
        there = (self.created == 1) & (self.dropping == 0)
        return [filter_name(int(run), int(slot)) for run, slot in np.argwhere(there)]


def _joined(parts: object) -> NDArray[np.int64]:
    arrays = list(parts)  # type: ignore[call-overload]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
