"""Power cuts by the thousand: record a store at work, build legal images of its disk, open them.

    tools/powerloss.py                             both tables, with 2000 images
    tools/powerloss.py --images 20000 --seed 3     more images of the real library
    tools/powerloss.py --images 0                  only the mutants, each with one rule broken

The recordings are those of tests/powerloss: the whole program, kills at every named step, a disk
that refuses calls, power cuts during recovery, and power cuts during the recovery from those. The
seed chooses the steps, the moments and the bytes that survive. The second table shows that these
images can find a fault: it lists the library with one rule of its order broken, and the check that
noticed.

Exit status: 0 when the promise was kept and every mutant was caught, else 1.
"""

from __future__ import annotations

import argparse
import collections.abc as abc
import errno
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from bloomstore.crash import POINTS
from tests.powerloss import plans
from tests.powerloss.campaign import Judges, Plan, Recording, Report, record, record_recovery
from tests.powerloss.device import Fault
from tests.powerloss.scenes import SCENES

KILL_POINTS = [point for point in POINTS if not point.startswith("recovery")]
CALLS = [
    ("allocate", errno.ENOSPC, ".seg"),
    ("write", errno.ENOSPC, ".seg"),
    ("write", errno.ENOSPC, "data.mdb"),
    ("write", errno.EIO, "data.mdb"),
    ("sync", errno.EIO, ".seg"),
    ("sync", errno.EIO, "segments"),
    ("sync", errno.EIO, "data.mdb"),
    ("msync", errno.EIO, ".seg"),
    ("open", errno.EMFILE, ".seg"),
    ("unlink", errno.EIO, ".seg"),
]
# Images per recording: fewer would be mostly recording, more would see the same steps again.
PER_RECORDING = 120
PER_RECOVERY = 30


def chosen_plans(chance: random.Random) -> abc.Iterator[Plan]:
    """Recordings without end: the whole program in turn with what may befall it."""
    yield plans.NEW_FOLDERS
    yield plans.KILLED_BEFORE_THE_LAST_SYNC
    yield plans.DIRTY_WITHOUT_DESCRIPTORS
    while True:
        yield plans.EVERYTHING
        yield plans.killed(chance.choice(KILL_POINTS), chance.choice([1, 2, 3, 5, 8]))
        call, error, part = chance.choice(CALLS)
        yield plans.refused(Fault(call, chance.randint(1, 12), error, part))


def show(report: Report, seconds: float) -> None:
    """One row of the table."""
    print(
        f"{report.name[:56]:56} {report.steps:6} {report.promises:8} {report.images:7}"
        f" {len(report.violations):10} {seconds:6.0f} s",
        flush=True,
    )
    for violation in report.violations[:2]:
        print(violation, flush=True)


def run(images: int, seed: int, keep: Path, folder: Path) -> int:
    """Judges so many images of the library as it is; returns how many broke the promise."""
    chance = random.Random(seed)
    done = broken = 0
    print(f"{'recording':56} {'steps':>6} {'promises':>8} {'images':>7} {'violations':>10}")
    with Judges(folder / "images") as judges:

        def judge(recorded: Recording, count: int) -> None:
            nonlocal done, broken
            begin = time.monotonic()
            report = judges.judge(
                recorded, min(count, images - done), chance.randrange(1 << 30), keep=keep
            )
            done += report.images
            broken += len(report.violations)
            show(report, time.monotonic() - begin)

        for plan in chosen_plans(chance):
            if done >= images:
                break
            recorded = record(plan, folder / "recording")
            judge(recorded, PER_RECORDING)
            for _ in range(2):
                if done < images:
                    recorded = record_recovery(recorded, str(chance.random()), folder / "recovery")
                    judge(recorded, PER_RECOVERY)
    print(f"{done} images, {broken} violations")
    if broken:
        print(f"the last violating image is in {keep}")
    return broken


def run_mutants(images: int, seed: int, folder: Path) -> int:
    """Every mutant, and the real library on the same ground; returns how many rows are wrong."""
    wrong = 0
    print(f"\n{'mutant':28} | {'images':>6} | caught by")
    real: dict[object, int] = {}  # violations of the real library, by what it does
    with Judges(folder / "images") as judges:
        for mutant, plan in plans.MUTANT_PLANS.items():
            if plan not in real:
                whole = record(plans.without_mutant(mutant), folder / "real")
                real[plan] = len(judges.judge(whole, images, seed).violations)
            broken = record(plans.with_mutant(mutant), folder / "broken")
            report = judges.judge(broken, images, seed)
            wrong += (real[plan] > 0) + (not report.violations)
            caught = [violation.wrong[0] for violation in report.violations]
            row(mutant, str(report.images), f"{len(caught)} images", caught, real[plan])
    for mutant, (play, unbroken) in SCENES.items():
        keys = play(folder / f"{mutant}, broken", mutant)
        lost = play(folder / f"{mutant}, real", unbroken)
        wrong += (keys == 0) + (lost > 0)
        how = play.__name__.replace("_", " ")
        row(mutant, "-", f"{keys} keys", [f"a running reader does not find them ({how})"], lost)
    return wrong


def row(mutant: str, images: str, count: str, caught: list[str], real: int) -> None:
    """One row of the second table; the real library must not be in it."""
    first = re.sub(r"\S*/image \d+ of \d+/", "", min(caught, key=len)) if caught else "NOTHING"
    unbroken = f"; THE REAL LIBRARY TOO: {real}" if real else ""
    print(f"{mutant:28} | {images:>6} | {count}: {first}{unbroken}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000, help="of the library as it is")
    parser.add_argument("--mutant-images", type=int, default=400, help="of each mutant; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path(tempfile.gettempdir()) / "bloomstore-violation",
        help="where a violating image is kept",
    )
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="bloomstore-powerloss-") as name:
        if args.images:
            wrong += run(args.images, args.seed, args.keep, Path(name))
        if args.mutant_images:
            wrong += run_mutants(args.mutant_images, args.seed, Path(name))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
