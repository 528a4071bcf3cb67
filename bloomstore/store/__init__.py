"""Stores and filters: the only layer where journal, chain and catalog meet.

    options.py     how a store is opened, and checks of what callers pass
    note_names.py  names of the notes that bloomstore itself writes
    process/       the folder, files, locks and words that this process has open
    durable/       the ordered steps that survive a crash
    view.py        a filter at one generation, and whether its "no" may be believed
    stats.py       the numbers of a filter
    write/         the roads of a key into a filter
    care/          check, repair, backup
    notes.py       small durable values for plugins
    filter.py      Filter: the handle of one filter
    store.py       Store: the public face of an open store
    open.py        `bloomstore.open`

The order is that of the ranks: a room imports only rooms above it in this list.
"""
