"""Looking after a store: finding damage, mending it, copying the store.

check.py   reads everything and yields every problem
repair.py  mends what can be mended without the source
backup.py  a consistent copy of a store that is in use
"""
