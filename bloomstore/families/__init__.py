"""Filter families, one per file: they turn a user's request into stages.

contract.py     FilterSpec, which every family implements
sized.py        the base of families whose stages are sized by keys and an error
fixed.py        one stage for a known number of keys
scalable.py     stages that grow and tighten; the error never exceeds its target
dynamic.py      stages of one size; errors add up
flexible.py     vectors of one load, whose sizes follow an expanding speed
expansion.py    how a flexible filter chooses its expanding speed
stage.py        one stage as a family planned it, and when it is full
fields.py       checks of the numbers that users give
plain_form.py   specs from the dictionaries of catalog rows, and the table of families
promise.py      the error of chains whose stages are full by new keys
growth_plan.py  the chain of a filter as it grows, computed and not made
"""
