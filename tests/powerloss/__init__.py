"""Power loss, simulated: what a store asks of the device is recorded, cut off, and opened again.

device.py    a library under the process (device.c, device.h) that records its file operations, or
             makes them fail
trace.py     what was recorded, and when each step became certain
images.py    the states of the disk that a power cut may leave
folders.py   folders as values
program.py   the recorded program: everything a store can do
mutants.py   the same library with one step of its order broken
verdict.py   opens an image like the next user and compares it with what was acknowledged
worker.py    builds and judges images, many per process
conftest.py  processes that judge images, for the tests
campaign.py  recordings and many images of them, on all processors
plans.py     what is recorded
scenes.py    mutants that no power cut shows: two processes at once, a kill
test_mutants.py    every rule of the order is needed
test_power_cut.py  what was acknowledged is there after a power cut
"""
