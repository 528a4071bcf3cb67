"""The loops over bits: one interface, a compiled twin and a numpy twin that give the same bits.

The twin is chosen once, when this package is imported: the compiled one where it was built, the
numpy one otherwise. BLOOMSTORE_KERNELS=numpy or =compiled forces one. BACKEND says which it is.

    contract.py       checks of arguments, which keep a loop inside its vector
    numpy_twin.py     every function in numpy; its docstrings say what the functions mean
    single_key.py     the numpy twin of single lookups and adds
    threads.py        how many threads one call may use
    compiled.pyx      the same functions in C: checks and buffers
    compiled.pyi      their types
    find_keys.pxi     part of compiled.pyx: lookups straight from keys
    fingerprints.pxi  part of compiled.pyx: fingerprints of many keys
    checksum.pxi      part of compiled.pyx: checksums of blocks
    single_key.pxi    part of compiled.pyx: single lookups and adds
    c/                the loops themselves; each file says in its head what it is for

The functions of both twins:

    find        which keys are reported by any of the vectors
    find_keys   the same for a list of plain keys or an int64 array, without fingerprints in between
    are_all     whether every value of a list is exactly of one type
    are_integers
                whether every one is exactly an int between two bounds
    preview     what adding keys would change, up to given limits
    insert      the same, and the bits are set
    apply       set all bits of all keys (replay)
    mark        set the flags of the parts of a vector that keys touch
    count_bits  set bits of a vector
    block_checksums
                crc32c of blocks of a vector, and their set bits
    fingerprints_of_int64, fingerprints_of_list, fingerprints_of_slices
                many keys of the plainest types at once; None where the caller must do it itself

Not here: the meaning of a geometry and the places of bits (layout), files (segment).
"""

from __future__ import annotations

import os

from bloomstore.errors import SpecError
from bloomstore.kernels.contract import MAX_PRINTS_PER_CALL
from bloomstore.kernels.single_key import NEVER

__all__ = [
    "BACKEND",
    "MAX_PRINTS_PER_CALL",
    "NEVER",
    "Keeper",
    "OneKey",
    "apply",
    "are_all",
    "are_integers",
    "block_checksums",
    "count_bits",
    "find",
    "find_keys",
    "fingerprints_of_int64",
    "fingerprints_of_list",
    "fingerprints_of_slices",
    "insert",
    "mark",
    "preview",
]

_forced = os.environ.get("BLOOMSTORE_KERNELS", "")
if _forced not in ("", "numpy", "compiled"):
    raise SpecError(f"BLOOMSTORE_KERNELS must be 'numpy' or 'compiled', got {_forced!r}")

try:
    if _forced == "numpy":
        raise ImportError("the numpy kernels were asked for")
    from bloomstore.kernels.compiled import (
        BACKEND,
        Keeper,
        OneKey,
        apply,
        are_all,
        are_integers,
        block_checksums,
        count_bits,
        find,
        find_keys,
        fingerprints_of_int64,
        fingerprints_of_list,
        fingerprints_of_slices,
        insert,
        mark,
        preview,
    )
except ImportError as error:
    if _forced == "compiled":
        raise ImportError(
            "BLOOMSTORE_KERNELS=compiled, but the compiled kernels were not built; install with"
            " BLOOMSTORE_REQUIRE_COMPILED=1 to see why"
        ) from error
    from bloomstore.kernels.numpy_twin import (
        BACKEND,
        apply,
        are_all,
        are_integers,
        block_checksums,
        count_bits,
        find,
        find_keys,
        fingerprints_of_int64,
        fingerprints_of_list,
        fingerprints_of_slices,
        insert,
        mark,
        preview,
    )
    from bloomstore.kernels.single_key import Keeper, OneKey
