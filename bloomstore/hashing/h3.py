"""Hash scheme H3: every address bit is the parity of a matrix row AND the key.

In: the first half of fingerprints as uint64; out: 48-bit addresses. The SFBF paper's scheme: hash u
is a bit matrix Q[u], row t gives bit t of the address, and row 0 gives the most significant bit.
A slice of 2^l bits uses the first l rows, so its address is the 48-bit address shifted right by
48 - l: one computation serves every vector of a chain (the shift query).

Parity by rows costs 48 steps. Over GF(2) the address is also the XOR of one column for each set
bit of the key; a table holds these sums for each value of each of the 8 bytes of the key.

    matrix rows      Q[u][t], 64 columns; bit c of a row meets bit c of the key
    tables(u)        uint64[8][256]: [byte i of the key][its value]
    table_rows(g)    uint64[8][256][8]: the same for hashes 8g..8g+7 side by side, so that the
                     kernels fetch eight hashes with one cache line

Invariants
  1. The generator is part of the file format: the rows never change.
  2. No row is zero; no row occurs twice in a matrix or at the same t in two matrices.
  3. Tables are made on first use, cached for the life of the process, and read-only.

Not here: slices and shifts (layout), bits (kernels).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

ROWS = 48
MATRICES = 64
GROUP = 8  # hashes side by side in table_rows: 8 * 8 bytes are one cache line
_KEY_BYTES = 8
_LINE_BYTES = 64
_STARTS = 256 * np.arange(_KEY_BYTES)  # where the sums of each byte begin in a table
# Up to so many keys are looked up in one call of numpy: 6 us instead of 17 for 100 of them.
_ONE_CALL_KEYS = 256
_SEED = 0x626C6F6F6D483301  # "bloomH3" and a version byte
_MASK64 = (1 << 64) - 1


def _splitmix64(state: int) -> Iterator[int]:
    """The stream of Steele, Lea and Flood (2014): full period, no state but a counter."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK64
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK64
        yield word ^ (word >> 31)


@cache
def matrices() -> tuple[tuple[int, ...], ...]:
    """All 64 matrices, each as its 48 rows. Takes about 3 ms, once."""
    stream = _splitmix64(_SEED)
    rows_of: list[list[int]] = [[] for _ in range(MATRICES)]
    for _ in range(ROWS):
        taken = {0}
        for matrix in rows_of:
            row = next(word for word in stream if word not in taken and word not in matrix)
            taken.add(row)
            matrix.append(row)
    return tuple(tuple(matrix) for matrix in rows_of)


def apply_matrix(rows: Sequence[int], width: int, key: int) -> int:
    """The address that a matrix of this many columns gives a key, by parities (the definition)."""
    if not 0 <= key < 1 << width:
        raise ValueError(f"the key must have at most {width} bits, got {key}")
    address = 0
    for row in rows:
        address = address << 1 | (row & key).bit_count() & 1
    return address


@cache
def tables(u: int) -> Words:
    """The sums of columns of matrix u: uint64[8][256], read-only."""
    rows = np.array(matrices()[u], dtype=np.uint64)
    shift = np.arange(ROWS - 1, -1, -1, dtype=np.uint64)
    sums = np.zeros((_KEY_BYTES, 256), dtype=np.uint64)
    for bit in range(64):
        column = np.bitwise_or.reduce(((rows >> np.uint64(bit)) & np.uint64(1)) << shift)
        byte, half = bit // 8, 1 << bit % 8
        sums[byte, half : 2 * half] = sums[byte, :half] ^ column
    sums.setflags(write=False)
    return sums


@cache
def table_rows(group: int) -> Words:
    """The tables of hashes 8*group to 8*group + 7, interleaved: uint64[8][256][8], read-only."""
    room = np.empty(_KEY_BYTES * 256 * GROUP + GROUP, dtype=np.uint64)
    start = -room.ctypes.data % _LINE_BYTES // room.itemsize  # a row must not straddle two lines
    rows = room[start : start + _KEY_BYTES * 256 * GROUP].reshape(_KEY_BYTES, 256, GROUP)
    for u in range(GROUP):
        rows[:, :, u] = tables(group * GROUP + u)
    rows.setflags(write=False)
    return rows


def addresses48(keys: Words, u: int) -> Words:
    """The 48-bit addresses that hash u gives the keys (the first halves of fingerprints)."""
    values = keys.astype("<u8").view(np.uint8).reshape(-1, _KEY_BYTES)
    addresses: Words
    if len(values) <= _ONE_CALL_KEYS:
        addresses = np.bitwise_xor.reduce(tables(u).take(values + _STARTS), axis=1)
        return addresses
    addresses = np.zeros(len(values), dtype=np.uint64)
    for byte, sums in enumerate(tables(u)):
        addresses ^= sums.take(values[:, byte])
    return addresses


def address48_of_one(key: int, u: int) -> int:
    """The 48-bit address that hash u gives one key."""
    parts = _tables_as_lists(u)
    address = 0
    for byte, value in enumerate(key.to_bytes(_KEY_BYTES, "little")):
        address ^= parts[byte][value]
    return address


@cache
def _tables_as_lists(u: int) -> list[list[int]]:
    # Looking up a list takes 30 ns, looking up an array 100 ns and gives a numpy scalar.
    parts: list[list[int]] = tables(u).tolist()
    return parts
