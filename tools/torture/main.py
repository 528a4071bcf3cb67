"""Torture a store at random, and count which acknowledged keys are lost.

    python tools/torture.py --rounds 1000 --seed 1 --writers 4 --durability both
    python tools/torture.py --damage 10000 --seed 1
    python tools/torture.py --flips 10000 --seed 1
    python tools/torture.py --interrupts 10000 --seed 1

    --rounds        writers are killed by SIGKILL, at any moment and at every named crash point
    --damage        files of a closed store are changed, cut short, removed and swapped
    --flips         single bits in the catalog of a closed store are flipped
    --interrupts    a signal handler raises an exception inside every operation

Exit status: 0, or 1 when the promise was broken; the folder is then left for a closer look.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from pathlib import Path

from tools.torture import damage, flips, interrupts, kills
from tools.torture.ledger import MAIN


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100, help="rounds of kills")
    parser.add_argument("--damage", type=int, metavar="N", help="N random damages instead of kills")
    parser.add_argument("--flips", type=int, metavar="N", help="N flipped bits in the catalog")
    parser.add_argument("--interrupts", type=int, metavar="N", help="N exceptions of signals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", type=int, choices=range(1, 5), default=4)
    parser.add_argument("--durability", choices=[*MAIN, "both"], default="both")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the store here and keep it")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*nothing survives a reboot")
    folder = args.keep or Path(tempfile.mkdtemp(prefix="torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    if args.damage is not None:
        kept = damage.torture(folder, args.damage, args.seed, args.seconds)
    elif args.flips is not None:
        kept = flips.torture(folder, args.flips, args.seed, args.seconds)
    elif args.interrupts is not None:
        kept = interrupts.torture(folder, args.interrupts, args.seed, args.seconds)
    else:
        kept = kills.torture(folder / "store", args)
    print("the promise was kept" if kept else f"THE PROMISE WAS BROKEN, see {folder}")
    if kept and args.keep is None:
        shutil.rmtree(folder)
    return 0 if kept else 1
