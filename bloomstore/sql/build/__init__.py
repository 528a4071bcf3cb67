"""Guards become valid: their tables are read into their filters.

ceremony.py        the steps that builds and rebuilds share, in their order
guard_builds.py    which guards a build or a rebuild of a plugin is for
build.py           a build: the filter is filled in place
guard_source.py    a guard's table as the source of a rebuild
table_source.py    tables and SELECTs as sources of rebuilds
snapshot.py        one moment of a database, whole
fetch.py           rows as the driver has them, in parts and counted
key_ranges.py      ranges of an integer column, read side by side
build_lock.py      one builder of a store at a time
"""
