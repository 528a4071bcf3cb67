"""Keys of rows that no plugin has seen being written: triggers write them to outboxes.

    catch_up.py    the feed of a guard: reading the outbox before an answer
    position.py    how far an outbox was read
    follower.py    reading and purging outboxes in the background

The tables and their triggers are in schema/outbox_tables.py.
"""
