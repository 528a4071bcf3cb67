"""The formulas: how many bits, how many hashes, how full, how wrong. Nothing here touches a bit.

A tour, from one vector to a chain of them:

    vector.py    one plain or sliced vector: fill, error, capacity, distinct keys from set bits
    blocked.py   the same for vectors whose keys stay inside one line of 512 bits
    sizing.py    from (keys, target error) to (slice bits, hashes, capacity, fill limit), per
                 layout; its head is the cheat sheet of symbols
    scalable.py  a chain of growing vectors with tightening errors (SBF)
    flexible.py  a chain of vectors of one load, their sizes given by expanding speeds (SFBF)
    sharing.py   the errors of such a chain when its vectors share positions, as they do here

Every function is pure and names its source. Sources, as cited below:

    SBF     Almeida, Baquero, Preguica, Hutchison: Scalable Bloom Filters (2007)
    SFBF    Xie, Tao, Wang, Min, Wen, Zhang, Li, Xie: SFBF, a Scalable and Flexible Bloom Filter
    survey  the survey of uses and analysis of Bloom filters (equations 1 to 5)
    slides  the lecture slides on standard and counting Bloom filters
    notes   the Bloom Filter Notes of 2011 (sizing tables)

Names are imported from the modules themselves; this package re-exports nothing. Not here: limits
of a geometry (layout), hashing, and everything that is measured and not computed.
"""
