"""Frozen descriptions: geometry of a vector, a stage, a filter family, an expansion.

geometry.py   what the bits of one vector mean
stage.py      one stage and when it is full
family.py   Fixed, Scalable, Dynamic, Flexible: from a wish to stages
expansion.py  how fast a Flexible filter grows
promise.py    what a family promises for a filter with these stages
"""
