"""Guards: their declarations, their keys, and whether their filters may be believed.

declaration.py            Guard: the application's declaration for its columns
guard.py                  one guard at work: it answers lookups and takes keys
trust.py                  whether the filter may be believed in front of the live database
key_maker.py              makes keys of the application's values
key_form.py               the facts that the keys of a guard depend on
live_table.py             reads the live database and its guarded tables
record.py                 the record of the last build, in the store's notes
guard_set.py              all guards of one plugin, and those of other programs
connection_settings.py    whether a connection's settings are those that guards were compared with
foreign_listeners.py      other code's event listeners, and the changes they may make
metrics.py                counts of answers
stats.py                  these counts and the state of a filter, for people to read
contract.py               the Protocols that capture/ and outbox/ implement
"""
