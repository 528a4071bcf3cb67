"""What a guard is, and whether it may be believed.

declaration.py            Guard: what the application declares for its columns
guard.py                  one guard at work: it answers lookups and takes keys
trust.py                  whether the filter may be believed in front of the live database
key_maker.py              values as the application has them become keys
key_form.py               what the keys of a guard depend on
live_table.py             the live database and its guarded tables, as they are read
record.py                 the record of the last build, in the store's notes
guard_set.py              all guards of one plugin, and those of other programs
connection_settings.py    whether a connection still has the settings that guards were met with
foreign_listeners.py      listeners of others, and what they may change unheard
metrics.py                counts of answers
stats.py                  these counts, and the state of a filter, as numbers for people
contract.py               the Protocols that capture/ and outbox/ implement
"""
