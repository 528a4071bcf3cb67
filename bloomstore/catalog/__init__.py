"""Which filters and stages exist, and the journal: rows in LMDB.

environment.py   the LMDB environment, made as a whole and opened with care
pages.py         whether data.mdb can be believed, before LMDB opens it
witness.py       the number of the last commit, kept outside data.mdb
room.py          how full the map is, and which readers keep it full
gate.py          keeps transactions from crossing a fork or a close
frames.py        version and checksum around every value
fields.py        the fields of a JSON row, each checked for its type
reasons.py       codes and texts of why a stage or filter answers "maybe"
rows.py          typed rows and their payloads
journal_rows.py  the rows of the journal, packed for the write path
journal_index.py  which journal rows name which segment
view.py          the catalog at one moment
change.py        a change of it, committed as a whole
transaction.py   the blocks around one LMDB transaction each
catalog.py       an open catalog: reads, writes, commits
upgrade.py       steps from older formats to the present one
"""
