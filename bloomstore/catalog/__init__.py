"""Which filters and stages exist, and the journal: rows in LMDB.

environment.py  the LMDB environment: made whole, opened with care
gate.py         no transaction crosses a fork or a close
rows.py         typed rows, their bytes and checksums
catalog.py      read views and atomic changes
"""
