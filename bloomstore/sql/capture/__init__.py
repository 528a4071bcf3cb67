"""Writes become keys before their rows become visible.

Files, from the driver inwards:

    capture.py           the wrapped methods of a dialect, and the durable step before a commit
    dialect_patch.py     replaces a dialect's method with a wrapper, and restores it
    plan_cache.py        the plan of each statement, and the effects of each text, cached
    write_plan.py        where the keys of a compiled write are
    written_keys.py      reads the keys of one execution
    tampering.py         whether a listener has changed a statement on its way
    pending.py           the keys of one open transaction
    returning.py         bulk INSERTs that must return the keys the server makes
    autocommit_lock.py   keeps builds away from statements under AUTOCOMMIT
"""
