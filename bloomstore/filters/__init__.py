"""A chain of stages that can be asked, and what its counts and bits tell.

chain.py     the stages of one filter as one object that can be asked
estimate.py  numbers with an interval
damaged.py   errors and set bits of a stage some of whose blocks are damaged
overlap.py   the error of several stages, which share positions
count.py     distinct keys of several stages
"""
