"""Things side by side: `python -m tools.compare.growth`, `.checkouts` and so on.

checkouts.py  one benchmark of two checkouts, in turns
growth.py     bits per key of growing filters, by the formulas
layouts.py    bits, time and page faults of each layout, measured
open.py       time and bytes read until a store is open
registers.py  what registers of 512 bits gain
"""
