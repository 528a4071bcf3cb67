"""Stores and filters: the only place where journal, chain and catalog meet.

open.py     `bloomstore.open`                    open_stores.py    which stores are open, forks
startup.py   files opened and brought up
store.py       Store                               filter.py      the handle of one filter
view.py        a filter at one generation          open_files.py        open files, shared by all
parts
writer.py      plan, journal, bits                 stage_files.py      new files, tombstones
checkpoint.py  sync, checksums, seal               recovery.py    what a dead holder or a crash left
batch.py       one commit for many adds            batch_blocks.py     which batch an add belongs to
bulk_load.py        many keys without a journal         writer_lock.py        writer lock, words,
users
coming_chain.py     a new chain beside the live one     stage_in_memory.py   its keys in memory,
when many
check.py       everything that is wrong            damage.py      whether bits are as they must be
group_commit.py       one commit for many threads         single_commit.py    a durable add, nobody
in the way
problem.py     one finding of check                stats.py       numbers for people
folder.py      the directory and its disk          notes.py       bytes for plugins
backup.py      a consistent copy                   repair.py      what can be mended
options.py     how a store is opened
"""
