"""Hash scheme SPREAD: from a fingerprint to positions that are independent at every slice size.

In: both halves of fingerprints as uint64 arrays (or Python integers, for one key); out: positions
in 0..bits-1. Double hashing alone, `h1 + j*h2` reduced to a small slice, repeats whole probe
patterns: at 32 keys and a target of 1e-4 its error was 6.9 times the promise (18 times with a
modulo). One multiplication per index mixes the sum first (0.93 to 1.08 of the promise), and the
high half of a product takes the place of the modulo.

    mix(y)       (y ^ (y >> 32)) * 0x9E3779B97F4A7C15
    position j   high 64 bits of mix(h1 + j*h2) * bits                  (plain and sliced)
    line         high 64 bits of h1 * lines                             (blocked)
    in line j    9 bits of word j//7, from bit 9*(j%7) on; word 0 is h2, word w is mix(h2 + w*h1)

Invariants
  1. This is part of the file format: a filter written years ago is read with the same arithmetic.
     A better scheme gets a new code; this one is never edited.
  2. Everything wraps at 64 bits, and multiply_high is exact for every size up to 2^48.

Not here: where a position lies in a vector (layout), matrices (h3.py), bits (kernels).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

MULTIPLIER = 0x9E3779B97F4A7C15
LINE_BITS = 512
POSITION_BITS = 9  # of a position in a line: 2^9 = 512
POSITIONS_PER_WORD = 7  # 7 * 9 = 63 bits of a word are used
_MASK64 = (1 << 64) - 1
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def mix(words: Words) -> Words:
    """Spread the entropy of each word upwards, where multiply_high looks."""
    return (words ^ (words >> _HALF)) * np.uint64(MULTIPLIER)


def multiply_high(words: Words, size: int) -> Words:
    """The high 64 bits of words * size, exactly: a number in 0..size-1. Size is 1 to 2^48."""
    high, low = words >> _HALF, words & _LOW_HALF
    if size <= 1 << 32:  # no partial sum reaches 2^64, so two products are enough
        factor = np.uint64(size)
        return (high * factor + ((low * factor) >> _HALF)) >> _HALF
    size_high, size_low = np.uint64(size >> 32), np.uint64(size & 0xFFFFFFFF)
    middle = high * size_low + ((low * size_low) >> _HALF)
    carry = (low * size_high + (middle & _LOW_HALF)) >> _HALF
    product: Words = high * size_high + (middle >> _HALF) + carry
    return product


def positions(first: Words, second: Words, j: int, bits: int) -> Words:
    """Where hash j puts each fingerprint among this many bits."""
    return multiply_high(mix(first + np.uint64(j) * second), bits)


def lines(first: Words, count: int) -> Words:
    """Which of the lines each fingerprint belongs to."""
    return multiply_high(first, count)


def positions_in_line(first: Words, second: Words, j: int) -> Words:
    """Where hash j puts each fingerprint among the 512 bits of its line."""
    index, part = divmod(j, POSITIONS_PER_WORD)
    word = second if index == 0 else mix(second + np.uint64(index) * first)
    return (word >> np.uint64(POSITION_BITS * part)) & np.uint64(LINE_BITS - 1)


# The same for one key, in Python integers -------------------------------------------


def position_of_one(first: int, second: int, j: int, bits: int) -> int:
    """Where hash j puts this fingerprint among this many bits."""
    return (_mix_one(first + j * second) * bits) >> 64


def line_of_one(first: int, count: int) -> int:
    """Which of the lines this fingerprint belongs to."""
    return (first * count) >> 64


def position_in_line_of_one(first: int, second: int, j: int) -> int:
    """Where hash j puts this fingerprint among the 512 bits of its line."""
    index, part = divmod(j, POSITIONS_PER_WORD)
    word = second if index == 0 else _mix_one(second + index * first)
    return (word >> (POSITION_BITS * part)) & (LINE_BITS - 1)


def _mix_one(word: int) -> int:
    word &= _MASK64
    return ((word ^ (word >> 32)) * MULTIPLIER) & _MASK64
