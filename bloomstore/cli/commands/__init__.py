"""The commands, one per file: HELP, EXAMPLES, configure(parser) and run(args, out) -> status.

create.py      make an empty filter
add.py         add keys
query.py       ask for keys
ls.py          list the filters of a store
info.py        everything known about a filter
plan.py        the cost of a filter as it grows
checkpoint.py  write all bits and empty the journal
check.py       read every file and report problems
repair.py      mend damage without the keys
rebuild.py     rebuild a filter from its source
verify.py      ask a filter for every key of its source
backup.py      copy a store while it is in use
drop.py        remove a filter
db.py          the tables that guards keep in a database
follow.py      keys from the outboxes of a database into guards
"""
