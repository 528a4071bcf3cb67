"""Which filters and stages exist, and the journal: rows in LMDB.

environment.py  the LMDB environment: made whole, opened with care
gate.py         no transaction crosses a fork or a close
rows.py         typed rows, their bytes and checksums
catalog.py      transactions: read views and atomic changes
view.py         what is in the tables at one moment, and changes of it
"""
