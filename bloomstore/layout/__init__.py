"""The layouts of a vector, one per file: its sizes, where bits lie, and what the bits tell.

contract.py  Geometry, which every layout implements, and the codes of layouts and schemes
plain.py     hashes set bits anywhere in the vector
sliced.py    each hash sets its bit in a slice of its own
blocked.py   all bits of a key lie in one line of 512 bits
layouts.py   the layouts by code and by name
"""
