"""What can be a key, and the fingerprint of one key or of many.

    fingerprint("alice")                        16 bytes
    fingerprints([1, 2, 3])                     uint64[3, 2]
    for prints in fingerprint_chunks(keys):     any iterable, any size, bounded memory

Keys that are equal in Python have equal fingerprints, in every process, version and machine.
Not here: positions (hashing), bits (kernels).
"""

from bloomstore.keys.batches import CHUNK_KEYS, fingerprint_chunks, fingerprints, is_column
from bloomstore.keys.encoding import Key, TagCode, encode
from bloomstore.keys.sequences import fingerprint

__all__ = [
    "CHUNK_KEYS",
    "Key",
    "TagCode",
    "encode",
    "fingerprint",
    "fingerprint_chunks",
    "fingerprints",
    "is_column",
]
