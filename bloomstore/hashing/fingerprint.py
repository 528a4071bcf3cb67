"""Encoded key -> fingerprint: Murmur3 x64 128, with the key's tag folded into Murmur's seed.

In: encoded bytes, the tag of their encoding and the seed of the filter; or an array of 64-bit
words. Out: 16 bytes; or uint64[n, 2], C-contiguous, column 0 = h1 = the first 8 bytes read as a
little-endian number, column 1 = h2.

Invariants (part of the format, pinned by tests/golden/keys.json)
  1. murmur seed = (seed ^ (tag * 0x9E3779B1)) mod 2^32. The tag is in the seed and not a prefix,
     so a str's own UTF-8 and an Arrow buffer are hashed where they lie.
  2. The array form gives for each word exactly what mmh3 gives for its 8 little-endian bytes.

Not here: how a key becomes bytes and the meaning of tags (keys), positions (spread, h3). The seed
is not checked here: the filter's spec checks it once.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt

Prints: TypeAlias = npt.NDArray[np.uint64]

# The tag of an int64 key: keys.TagCode.INT, repeated here because keys imports this module.
INT_TAG: Final = 3

_GOLDEN: Final = 0x9E3779B1
_MASK32: Final = 0xFFFFFFFF

_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_F1: Final = np.uint64(0xFF51AFD7ED558CCD)
_F2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_31: Final = np.uint64(31)
_33: Final = np.uint64(33)

# Words per pass of the array form: 20 numpy calls over two buffers of 16 bytes per word, together
# 512 KiB here, the L2 cache of one core. Measured ns per word (AMD EPYC, 2^20 words):
#   1024: 24.2   2048: 15.1   4096: 11.5   8192: 9.1   16384: 8.5   65536: 7.9   one pass: 27
# 16384 is also the default chunk of keys, so a larger one would change nothing there.
CHUNK_WORDS: Final = 16384

digest = mmh3.mmh3_x64_128_digest


def murmur_seed(tag: int, seed: int) -> int:
    """Murmur's 32-bit seed for keys of one tag in a filter of this seed."""
    return (seed ^ (tag * _GOLDEN)) & _MASK32


def murmur(encoded: bytes | bytearray | memoryview, tag: int, seed: int) -> bytes:
    """The fingerprint of one encoded key."""
    return digest(encoded, (seed ^ (tag * _GOLDEN)) & _MASK32)


def gather(digests: list[bytes]) -> Prints:
    """Fingerprints given one by one, as one (writable) array."""
    # bytearray().join instead of b"".join: frombuffer over bytes would be read-only.
    flat = np.frombuffer(bytearray().join(digests), dtype="<u8")
    return flat.astype(np.uint64, copy=False).reshape(-1, 2)


def murmur_int64(array: npt.NDArray[Any], seed: int, tag: int = INT_TAG) -> Prints:
    """Fingerprints of keys that are encoded as 8 bytes: int64s, or the words of another tag.

    Any stride and byte order; narrower integers and bools are widened. A uint64 is taken by its
    bits, so the caller must leave out values of 2^63 and more, which have another encoding.
    """
    return _murmur_words(array, murmur_seed(tag, seed), 8)


def murmur_uint64_beyond(array: npt.NDArray[np.uint64], seed: int, tag: int) -> Prints:
    """Fingerprints of numbers 2^63 .. 2^64-1, whose encoding is 8 bytes and a ninth of zero.

    A ninth byte of zero adds nothing to Murmur's state, so only the length differs.
    """
    return _murmur_words(array, murmur_seed(tag, seed), 9)


def _murmur_words(array: npt.NDArray[Any], seed: int, length: int) -> Prints:
    """Murmur3 x64 128 of one word each: the tail of `length` bytes and the finish, no body."""
    words = len(array)
    prints = np.empty((words, 2), dtype=np.uint64)
    states = np.empty((2, min(words, CHUNK_WORDS)), dtype=np.uint64)
    shifted = np.empty_like(states)
    start = np.uint64(seed ^ length)  # both halves of the state: seed, later xor-ed with length
    for first in range(0, words, CHUNK_WORDS):
        chunk = array[first : first + CHUNK_WORDS]
        state, spare = states[:, : len(chunk)], shifted[:, : len(chunk)]
        h1, h2 = state
        np.copyto(h1.view(np.int64), chunk, casting="same_kind")
        h1 *= _C1
        np.right_shift(h1, _33, out=h2)  # rotate left by 31
        h1 <<= _31
        h1 |= h2
        h1 *= _C2
        h1 ^= start
        h1 += start
        np.add(h1, start, out=h2)
        for factor in (_F1, _F2):
            np.right_shift(state, _33, out=spare)
            state ^= spare
            state *= factor
        np.right_shift(state, _33, out=spare)
        state ^= spare
        h1 += h2
        part = prints[first : first + CHUNK_WORDS]
        part[:, 0] = h1
        np.add(h1, h2, out=part[:, 1])
    return prints
