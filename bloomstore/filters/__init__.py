"""A chain of stages, and what its counts say.

chain.py      the stages of one filter as one object that can be asked
estimate.py   numbers with an interval
accuracy.py   error and distinct keys of a stage from its fill
"""
