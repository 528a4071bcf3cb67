"""Makes guards valid by reading their tables into their filters.

ceremony.py        the steps that builds and rebuilds share, in their order
guard_builds.py    chooses the guards of a build or a rebuild
build.py           a build: the filter is filled in place
guard_source.py    a guard's table as the source of a rebuild
table_source.py    tables and SELECTs as sources of rebuilds
snapshot.py        a connection that sees every row of one moment
fetch.py           raw rows of the driver, in parts and counted
key_ranges.py      ranges of an integer column, read side by side
build_lock.py      the lock that lets one builder of a store work at a time
"""
