"""Stores and filters: the only place where journal, chain and catalog meet.

opening.py     `bloomstore.open`                    registry.py    which stores are open, forks
beginning.py   files opened and brought up
store.py       Store                               filter.py      the handle of one filter
view.py        a filter at one generation          core.py        open files, shared by all parts
writer.py      plan, journal, bits                 growth.py      new files, tombstones
checkpoint.py  sync, checksums, seal               recovery.py    what a dead holder or a crash left
batch.py       one commit for many adds            batches.py     which batch an add belongs to
bulk.py        many keys without a journal         lock.py        writer lock, words, users
rebuild.py     a new chain beside the live one     gathering.py   its keys in memory, when many
check.py       everything that is wrong            damage.py      whether bits are as they must be
group.py       one commit for many threads         ordinary.py    a durable add, nobody in the way
problem.py     one finding of check                stats.py       numbers for people
folder.py      the directory and its disk          notes.py       bytes for plugins
backup.py      a consistent copy                   repair.py      what can be mended
options.py     how a store is opened
"""
