"""The file of one stage.

header.py   its first page: identity and geometry
mapping.py  allocate, map, sync
blocks.py   checksums per 64 KiB
segment.py  all of it together
"""
