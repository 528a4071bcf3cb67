"""The ordered steps that survive a crash at any instant.

reasons.py      why a stage is poisoned
recovery.py     finishes work that a dead holder or a crash left
trust.py        verifies a stage before its "no" is believed
checkpoint.py   bits to the device, journal rows out; sealing
clock.py        how long a stage was open
stage_files.py  new files, replaced files, and the end of files
holding.py      the writer lock for a change, with dead holders' work finished
startup.py      opening the files of a store and bringing them up to the catalog
"""
