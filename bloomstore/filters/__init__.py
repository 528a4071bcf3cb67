"""A chain of stages, and what its counts say.

chain.py      the stages of one filter as one object that can be asked
estimate.py   numbers with an interval
damaged.py    the error of a stage some of whose blocks are ones
overlap.py    error of several stages, which share positions
count.py      distinct keys of several stages
"""
