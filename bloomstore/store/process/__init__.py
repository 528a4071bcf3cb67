"""What this process has open: the folder, the locks, the words and the files of its stores.

folder.py       the directory of a store, and whether its disk will do
words.py        numbers in shared memory that processes tell each other
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
