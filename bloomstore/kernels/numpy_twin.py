"""The loops over bits in numpy: the fallback without a compiler, and the definition for both twins.

In: vectors (uint8 arrays, usually over a mapped file), their geometries, and fingerprints
(uint64[n, 2]); out: answers, or set bits. A key is new when adding it sets at least one bit.

Invariants
  1. Same arguments, same results, bit for bit and stop for stop, as compiled.pyx (tests/kernels).
  2. find, preview and count_bits write nothing; insert and apply only ever set bits.
  3. Nothing here is locked: one thread at a time may change a vector, any number may read it. A
     reader beside the writer sees each bit either set or not yet set.
  4. Temporary arrays stay below about 100 MiB, however many fingerprints come.

Not here: addresses of bits (layout), when a stage is full (the caller gives limits).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bloomstore.hashing import h3
from bloomstore.hashing.fingerprint import murmur_int64
from bloomstore.kernels import contract
from bloomstore.layout.contract import Geometry, SchemeCode

Bits = NDArray[np.uint8]
Prints = NDArray[np.uint64]
Mask = NDArray[np.bool_]

BACKEND = "numpy"

# 16 K fingerprints and their addresses are half a MiB: they stay in the second-level cache.
_CHUNK = 16384
_COUNT_CHUNK = 1 << 20
_SORTABLE_ADDRESSES = 1 << 48  # above this, an address and a key's number exceed 64 bits


def find(vectors: Sequence[Bits], geometries: Sequence[Geometry], prints: Prints) -> Mask:
    """Which keys are reported by any of the vectors, asked in the order given."""
    contract.check_vectors(vectors, geometries)
    contract.check_prints(prints)
    answers = np.zeros(len(prints), dtype=np.bool_)
    for start in range(0, len(prints), _CHUNK):
        chunk = prints[start : start + _CHUNK]
        addresses48: dict[int, Prints] | None = {} if len(vectors) > 1 else None
        rows = np.arange(len(chunk))
        for vector, geometry in zip(vectors, geometries, strict=True):
            reported = _reported(vector, geometry, chunk, rows, addresses48)
            answers[start + reported] = True
            rows = rows[~answers[start + rows]]
            if not len(rows):
                break
    return answers


def find_keys(
    vectors: Sequence[Bits],
    geometries: Sequence[Geometry],
    keys: list[Any] | NDArray[np.int64],
    seed: int,
    found: Mask,
) -> int:
    """The same for keys in a list or a contiguous int64 array; returns how many were asked for.

    `found` has an entry for each key, all False, and gets the answers. A list is left to the
    caller from its first key on that is not exactly a str, bytes or int64, or some keys before it;
    this twin leaves all of it. Other threads may change a list: it is asked for as many keys as
    `found` has entries, and for fewer when it is shorter.
    """
    contract.check_vectors(vectors, geometries)
    if isinstance(keys, list):
        contract.check_found(found, None)
        return 0
    contract.check_found(found, len(keys))
    contract.check_int64(keys)
    for start in range(0, len(keys), _CHUNK):
        prints = murmur_int64(keys[start : start + _CHUNK], seed)
        found[start : start + _CHUNK] = find(vectors, geometries, prints)
    return len(keys)


def are_all(values: list[Any], kind: type) -> bool:
    """Whether every value of the list is exactly of this type."""
    # list.count takes 13 ns per value, a set of the types 21; the compiled twin 2.
    return list(map(type, values)).count(kind) == len(values)


def are_integers(values: list[Any], least: int, most: int) -> bool:
    """Whether every value of the list is exactly an int between these two, which count."""
    return not values or (are_all(values, int) and least <= min(values) and max(values) <= most)


def preview(
    vector: Bits, geometry: Geometry, prints: Prints, bits_left: int, keys_left: int
) -> tuple[int, Mask, int]:
    """Tells the changes that adding the keys in order would make: (taken, new, bits).

    Writes nothing. Stops before the first new key that does not fit any more: one for which fewer
    than `hashes` bits or no key are left. Keys that are not new cost nothing and never stop it.
    Takes at most 65536 fingerprints; `new` has one entry for each key taken.
    """
    contract.check_vector(vector, geometry)
    contract.check_few_prints(prints)
    return _preview(vector, geometry, prints, bits_left, keys_left)


def insert(
    vector: Bits, geometry: Geometry, prints: Prints, bits_left: int, keys_left: int
) -> tuple[int, Mask, int]:
    """The same as preview, and the bits are set; takes any number of fingerprints."""
    contract.check_vector(vector, geometry, to_write=True)
    contract.check_prints(prints)
    bits_left, keys_left = contract.limit(bits_left), contract.limit(keys_left)
    new = np.zeros(len(prints), dtype=np.bool_)
    done = bits = 0
    while done < len(prints):
        piece = prints[done : done + contract.MAX_PRINTS_PER_CALL]
        taken, fresh, set_now = _preview(vector, geometry, piece, bits_left - bits, keys_left)
        _set_all(vector, geometry, piece[:taken][fresh])
        new[done : done + taken] = fresh
        keys_left -= int(np.count_nonzero(fresh))
        bits += set_now
        done += taken
        if taken < len(piece):
            break
    return done, new[:done], bits


def apply(vector: Bits, geometry: Geometry, prints: Prints) -> None:
    """Set all bits of all keys, without limits and without counting (replay)."""
    contract.check_vector(vector, geometry, to_write=True)
    contract.check_prints(prints)
    for start in range(0, len(prints), _CHUNK):
        _set_all(vector, geometry, prints[start : start + _CHUNK])


def mark(flags: Bits, shift: int, geometry: Geometry, prints: Prints) -> None:
    """Set the flag of each bit of these keys, by its address >> shift.

    Ends when all are set: of many keys the first thousands have set them.
    """
    contract.check_flags(flags, shift, geometry)
    contract.check_prints(prints)
    for start in range(0, len(prints), _CHUNK):
        for j in range(geometry.hashes):
            if flags.all():
                return
            addresses = geometry.addresses(prints[start : start + _CHUNK], j)
            flags[(addresses >> np.uint64(shift)).view(np.int64)] = 1


def count_bits(vector: Bits) -> int:
    """How many bits are set, in all bytes."""
    contract.check_vector(vector, None)
    chunks = range(0, len(vector), _COUNT_CHUNK)
    return sum(int(np.bitwise_count(vector[at : at + _COUNT_CHUNK]).sum()) for at in chunks)


def block_checksums(
    vector: Bits, identity: bytes, block_bytes: int, blocks: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], int]:
    """The crc32c of each of these blocks, and the set bits of all of them.

    A checksum goes over `identity` (24 bytes that name the segment), the block number as eight
    bytes, and the bytes of the block; the last block may be shorter.
    """
    contract.check_blocks(vector, identity, block_bytes, blocks)
    named = google_crc32c.value(identity)
    checksums = np.empty(len(blocks), np.uint32)
    set_bits = 0
    for at, block in enumerate(blocks.tolist()):
        piece = vector[block * block_bytes : (block + 1) * block_bytes]
        numbered = google_crc32c.extend(named, struct.pack("<Q", block))
        checksums[at] = google_crc32c.extend(numbered, piece)
        set_bits += int(np.bitwise_count(piece).sum())
    return checksums, set_bits


def fingerprints_of_int64(array: NDArray[np.int64], seed: int) -> Prints:
    """The fingerprints of integer keys, given as a contiguous int64 array."""
    contract.check_int64(array)
    return murmur_int64(array, seed)


def fingerprints_of_list(
    keys: list[Any],  # noqa: ARG001
    seed: int,  # noqa: ARG001
    start: int = 0,  # noqa: ARG001
    stop: int | None = None,  # noqa: ARG001
) -> Prints | None:
    """Always None: numpy cannot look into Python objects, so the caller must hash them itself.

    The compiled twin gives the fingerprints of keys[start:stop] if all are exactly str, bytes or
    int64.
    """
    return None


def fingerprints_of_slices(
    memory: memoryview,  # noqa: ARG001
    offsets: NDArray[np.int64],  # noqa: ARG001
    tag: int,  # noqa: ARG001
    seed: int,  # noqa: ARG001
) -> Prints | None:
    """Always None, as above. The compiled twin hashes memory[offsets[i]:offsets[i + 1]]."""
    return None


def _reported(
    vector: Bits,
    geometry: Geometry,
    chunk: Prints,
    rows: NDArray[np.intp],
    addresses48: dict[int, Prints] | None,
) -> NDArray[np.intp]:
    """The rows of the chunk, out of those given, whose bits are all set.

    At fill 1/2 each hash rules out half of the absent keys, so the rest is compressed each time.
    H3 addresses of the whole chunk stay in addresses48 for the next vectors.
    """
    left = chunk if len(rows) == len(chunk) else chunk[rows]
    for j in range(geometry.hashes):
        if geometry.scheme == SchemeCode.H3 and addresses48 is not None:
            if j not in addresses48:
                addresses48[j] = h3.addresses48(chunk[:, 0], j)
            addresses = geometry.shifted_addresses(addresses48[j][rows], j)
        else:
            addresses = geometry.addresses(left, j)
        is_set = _are_set(vector, addresses)
        if not is_set.all():
            rows, left = rows[is_set], left[is_set]
            if not len(rows):
                break
    return rows


def _preview(
    vector: Bits, geometry: Geometry, prints: Prints, bits_left: int, keys_left: int
) -> tuple[int, Mask, int]:
    hashes, keys = geometry.hashes, len(prints)
    bits_left, keys_left = contract.limit(bits_left), contract.limit(keys_left)
    addresses = _all_addresses(geometry, prints)
    unset = np.flatnonzero(~_are_set(vector, addresses))
    setters = _first_with(addresses[unset], unset // hashes)
    bits = np.bincount(setters, minlength=keys)
    new = bits > 0
    bits_before: NDArray[np.intp] = np.cumsum(bits) - bits
    new_before: NDArray[np.intp] = np.cumsum(new) - new
    # Newness of a key depends only on keys before it, so cutting afterwards changes nothing.
    too_many = new & ((bits_left - bits_before < hashes) | (keys_left - new_before < 1))
    taken = int(too_many.argmax()) if too_many.any() else keys
    return taken, new[:taken], int(bits[:taken].sum())


def _all_addresses(geometry: Geometry, prints: Prints) -> Prints:
    """The addresses of all hashes, flat: those of the first key, those of the second, ..."""
    addresses = np.empty((len(prints), geometry.hashes), dtype=np.uint64)
    for j in range(geometry.hashes):
        addresses[:, j] = geometry.addresses(prints, j)
    return addresses.reshape(-1)


def _first_with(addresses: Prints, keys: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each distinct address the first key that has it, which is the one that sets the bit.

    The keys are numbered below 2^16 and ascend.
    """
    if not len(addresses) or int(addresses.max()) >= _SORTABLE_ADDRESSES:
        _, first = np.unique(addresses, return_index=True)
        return keys[first]
    # Sorting both as one number takes a seventh of the time of unique.
    pairs = np.sort(addresses << np.uint64(16) | keys.astype(np.uint64))
    is_first = np.ones(len(pairs), dtype=np.bool_)
    is_first[1:] = pairs[1:] >> np.uint64(16) != pairs[:-1] >> np.uint64(16)
    return (pairs[is_first] & np.uint64(0xFFFF)).astype(np.intp)


def _are_set(vector: Bits, addresses: Prints) -> Mask:
    # Numpy indexes by signed integers; as a view that costs nothing.
    octets = (addresses >> np.uint64(3)).view(np.int64)
    are_set: Mask = (vector[octets] >> _bit_of(addresses)) & np.uint8(1) != 0
    return are_set


def _set_all(vector: Bits, geometry: Geometry, prints: Prints) -> None:
    for j in range(geometry.hashes):
        addresses = geometry.addresses(prints, j)
        places = (addresses >> np.uint64(3)).view(np.int64)
        # Two keys may share a byte, so a plain |= would lose bits.
        np.bitwise_or.at(vector, places, np.uint8(1) << _bit_of(addresses))


def _bit_of(addresses: Prints) -> Bits:
    return (addresses & np.uint64(7)).astype(np.uint8)
