"""Encoded keys to fingerprints, fingerprints to positions. Everything here is frozen.

    fingerprint.py  encoded key -> 128 bits (Murmur3)
    spread.py       fingerprint -> positions, independent at every slice size
    h3.py           fingerprint -> positions by bit matrices, one computation for all sizes

The results are part of the file format: a scheme is appended, never edited. Not here: where in a
vector a position lies (layout).
"""
