"""Thousands of random accidents befall a store, and every lost key is counted.

main.py         the options of tools/torture.py
kills.py        processes that are killed, round by round
workers.py      the processes of kills.py: writers, a reader, a verifier
ledger.py       the memory that these processes share
damage.py       damage to the files of a closed store
flips.py        flipped bits in the catalog of a closed store
interrupts.py   exceptions raised by a signal handler
power_cuts.py   images of the disk after a power cut: tools/powerloss.py
"""
