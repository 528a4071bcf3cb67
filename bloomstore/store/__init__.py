"""Stores and filters: the only place where journal, chain and catalog meet.

opening.py     `bloomstore.open`                    registry.py    which stores are open, forks
store.py       Store                               filter.py      the handle of one filter
view.py        a filter at one generation          core.py        open files, shared by all parts
writer.py      plan, journal, bits                 growth.py      new files, tombstones
checkpoint.py  sync, checksums, seal               recovery.py    what a dead holder or a crash left
batch.py       one commit for many adds            bulk.py        many keys without a journal
rebuild.py     a new chain beside the live one     gathering.py   its keys in memory, when many
check.py       everything that is wrong            lock.py        writer lock, words, users
group.py       one commit for many threads         damage.py      whether bits are as they must be
problem.py     one finding of check                ordinary.py    a durable add, nobody in the way
folder.py      the directory and its disk          notes.py       bytes for plugins
backup.py      a consistent copy                   repair.py      what can be mended
stats.py       numbers for people                  options.py     how a store is opened
"""
