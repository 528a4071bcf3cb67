"""The folder, the locks, the words and the files of a store, as this process has them open.

folder.py       the directory of a store, and whether its file system is suitable
words.py        numbers that processes share in memory
users.py        which processes have the store open
kept_lock.py    the flock between processes, kept between holds
writer_lock.py  one writer at a time, among threads and processes
place.py        whether the path of a store still leads to its open files
open_files.py   Core: folder, catalog, lock and mapped segments of one open store
damage.py       whether the bits of a stage are what the catalog says
open_store.py   an open store as rooms of lower rank see it
watch.py        the thread that looks for lost stores
open_stores.py  all stores that this process has open, and forks
"""
