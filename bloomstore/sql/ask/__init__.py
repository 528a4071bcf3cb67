"""Lookups that need not be sent.

Files, from the session inwards:

    session.py            GuardedSession: asks before a statement is built or executed
    option.py             Guarded(): the option by which a query asks to be guarded
    asker.py              the object that a plugin attaches to its sessions, and their events
    eligibility.py        the one place that decides whether a lookup may be answered here
    permits.py            why repeated `get`s need no full check
    session_facts.py      facts about a session's engine and open transaction
    compared_database.py  whether an engine still leads to the database that the guards met
    gets.py               which `get`s a guard answers
    selects.py            answers SELECTs: nothing to send, or fewer keys in an IN
    select_plan.py        which SELECT a guard may answer
    plan_cache.py         the plan of each SELECT, cached
    bulk.py               many lookups of one guard at once
    probes.py             lookups without a session
    shadow.py             the policy that sends every query and looks for wrong answers
    listened_engines.py   the engines that a plugin listens to
    session_factories.py  the session factories that a plugin listens to
"""
