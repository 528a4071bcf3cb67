"""Encoded keys to fingerprints, fingerprints to bit addresses. Everything here is frozen.

    fingerprint.py   encoded key -> 128 bits (Murmur3)
    spread.py, h3.py fingerprint -> positions, the two hash schemes

What this package computes is part of the file format: append a scheme, never edit one.
"""
