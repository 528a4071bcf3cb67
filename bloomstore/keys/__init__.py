"""Keys: which values can be one, and the fingerprints of one key or of many.

    fingerprint("alice")                        16 bytes
    fingerprints([1, 2, 3])                     uint64[3, 2]
    for prints in fingerprint_chunks(keys):     any iterable, any size, bounded memory

    encoding.py   one key -> its tag and canonical bytes
    sequences.py  fingerprints of one key, of a list and of a numpy array
    arrow.py      fingerprints of Arrow arrays, read where they lie
    batches.py    keys in any container, in chunks of bounded size
    lines.py      keys from text, one per line

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
