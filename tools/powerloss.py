"""Power cuts by the thousand: record a store at work, build legal images of its disk, open them.

    tools/powerloss.py --images 5000 --seed 3      the library as it is; every violation is printed
    tools/powerloss.py --mutants                   the library with one rule broken, one by one

The recordings are those of tests/powerloss: the whole program, kills at every named step, a disk
that refuses calls, and power cuts during recovery, and during the recovery from those. The seed
chooses steps, moments and what survives. Exit status: 0 when the promise was kept (or, with
--mutants, when every mutant was caught and the real library never was), else 1.
"""

from __future__ import annotations

import argparse
import collections.abc as abc
import errno
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from powerloss import plans
from powerloss.campaign import Judges, Plan, Recording, Report, record, record_recovery
from powerloss.device import Fault
from powerloss.scenes import SCENES

from bloomstore.crash import POINTS

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
    """Every mutant and the real library on the same ground; returns how many rows are wrong."""
    wrong = 0
    print(f"{'mutant':28} {'shown by':40} {'broken':>16} {'real library':>16}")
    with Judges(folder / "images") as judges:
        for mutant in plans.MUTANT_PLANS:
            found = []
            for plan in (plans.with_mutant(mutant), plans.without_mutant(mutant)):
                report = judges.judge(record(plan, folder / "recording"), images, seed)
                found.append(f"{len(report.violations)} of {report.images}")
                wrong += bool(report.violations) is (plan.name != mutant)
            print(f"{mutant:28} {'power cuts':40} {found[0]:>16} {found[1]:>16}", flush=True)
    for mutant, (play, unbroken) in SCENES.items():
        broken = play(folder / f"{mutant}, broken", mutant)
        real = play(folder / f"{mutant}, real", unbroken)
        wrong += (broken == 0) + (real > 0)
        how = play.__name__.replace("_", " ")
        print(f"{mutant:28} {how:40} {f'{broken} keys':>16} {f'{real} keys':>16}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, help="how many (default 2000; per mutant 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", action="store_true", help="broken orders instead")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path(tempfile.gettempdir()) / "bloomstore-violation",
        help="where a violating image is kept",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bloomstore-powerloss-") as name:
        if args.mutants:
            return 1 if run_mutants(args.images or 200, args.seed, Path(name)) else 0
        return 1 if run(args.images or 2000, args.seed, args.keep, Path(name)) else 0


if __name__ == "__main__":
    sys.exit(main())
