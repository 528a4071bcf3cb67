"""The file of one stage.

header.py   the first page: identity and geometry
mapping.py  files allocated, mapped, synced, locked
blocks.py   checksums per 64 KiB
segment.py  a segment as a whole: made, mapped, verified
"""
