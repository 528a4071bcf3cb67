"""The tables of bloomstore in the user's database, and how a database is reached.

incarnation.py      bloomstore_incarnation: which database this is, and the token of each build
registry.py         bloomstore_guards: one row per guard with an outbox or an epoch
outbox_tables.py    outboxes and their triggers, as statements
connect.py          engines by URL, with errors of one line
migrate.py          revisions of these tables, and a check of them
"""
