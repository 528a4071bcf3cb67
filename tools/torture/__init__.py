"""Whatever may befall a store, at random and by the thousand; what is lost is counted.

main.py         tools/torture.py: which kind, how many, with which seed
kills.py        processes that are killed round by round
workers.py      the processes of kills.py: writers, a reader, a verifier
ledger.py       what these processes know of each other, in shared memory
damage.py       damage to the files of a closed store
flips.py        flipped bits in the catalog of a closed store
interrupts.py   exceptions of a signal handler
power_cuts.py   tools/powerloss.py: images of the disk after a power cut
"""
