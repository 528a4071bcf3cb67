"""Which filters and stages exist, and the journal: rows in LMDB.

environment.py  the LMDB environment: made whole, opened with care
pages.py        whether data.mdb can be believed, before LMDB opens it
witness.py      which commit was the last, outside of data.mdb
room.py         how full the map is, and who keeps it so
gate.py         no transaction crosses a fork or a close
rows.py         typed rows, their bytes and checksums
fields.py       the fields of a JSON row, each checked for its type
catalog.py      transactions: read views and atomic changes
view.py         what is in the tables at one moment, and changes of it
"""
