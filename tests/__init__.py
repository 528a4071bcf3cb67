"""Tests lie in the rooms of what they test; what crosses rooms has a room of its own.

Rooms of the package, with the same stems:

    catalog/         rows in LMDB
    cli/             commands and what they share
    families/        what the families promise, measured on real stores
    filters/         chains and their estimates
    hashing/         fingerprints and schemes
    kernels/         both twins give the same bits
    keys/            what can be a key
    layout/          bit addresses of every layout
    rebuild/         filters filled anew from their sources
    sql/             guards on SQLite, PostgreSQL and MariaDB
    store/           stores and filters, their writes and their care
    theory/          the formulas

Kinds of tests that cross rooms:

    faults/          damage, full disks, crashes at every named step
    golden/          files of released versions, made again byte for byte
    migrations/      revisions of the tables in guarded databases
    powerloss/       power cuts, simulated
    processes/       several processes and threads at once
    tools/           the programs in tools/
    test_docs.py     what the documents say is true
    test_errors.py   errors are defined in one file
    test_layers.py   no room imports a room of its own rank or above
    test_rooms.py    maps of rooms are true

Shared code, imported as `tests.support…` by tests, tools and the processes they start:

    support/         stores, measurements, the checkout
    conftest.py      fixtures for all tests
"""
