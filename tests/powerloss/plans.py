"""What is recorded: every part of the program, with kills, with a disk that refuses, and mutants.

EVERYTHING is the program as it should go; `killed` and `refused` are what may befall it before the
power fails; MUTANT_PLANS shows each mutant where it does its harm.
"""

from __future__ import annotations

import errno
from dataclasses import replace

from tests.powerloss.campaign import Plan, Run
from tests.powerloss.device import Fault

EVERYTHING = Plan(
    "everything",
    (
        Run(("begin", "adds")),
        Run(("rebuild", "notes", "drop", "backup")),
        Run(("load", "more")),
    ),
)

# The folders above the store do not exist before either.
NEW_FOLDERS = Plan("in new folders", (Run(("begin",)),), store="new/folders/store")

# SIGKILL between the renaming of a new catalog and the sync of its folder; others go on.
KILLED_BEFORE_THE_LAST_SYNC = Plan(
    "killed while it was made",
    (
        Run(("begin",), crash_at="create store: catalog renamed"),
        Run(("more",)),
    ),
)

# A process that died dirty; the next one cannot open its segments, and gives up or closes.
DIRTY_WITHOUT_DESCRIPTORS = Plan(
    "dirty, no descriptors",
    (
        Run(("begin",)),
        Run(("adds",), crash_at="process add: bits set#3"),
        Run(
            ("tidy",),
            faults=(Fault("open", 1, errno.EMFILE, ".seg", from_then_on=True),),
            may_fail=True,
        ),
    ),
    after_errors=True,
)


def killed(point: str, time: int = 1) -> Plan:
    """A process is killed at a named step, the next one goes on, then the power fails."""
    return Plan(
        f"killed at {point!r}, {time}",
        (
            Run(
                ("begin", "adds", "rebuild", "load", "drop"),
                crash_at=f"{point}#{time}",
                may_fail=True,
            ),
            Run(("more", "drop")),
        ),
    )


def refused(fault: Fault) -> Plan:
    """The disk refuses one call, the same process and the next one go on, then the power fails."""
    return Plan(
        f"{fault.call} of {fault.part!r} fails, {fault.n}",
        (Run(("begin",)), Run(("refuse",), faults=(fault,)), Run(("tidy",))),
        after_errors=True,
    )


REFUSALS = (
    Fault("allocate", 1, errno.ENOSPC, ".seg"),
    Fault("write", 2, errno.ENOSPC, ".seg"),
    Fault("sync", 1, errno.EIO, ".seg"),
    Fault("sync", 2, errno.EIO, "segments"),
    Fault("msync", 2, errno.EIO, ".seg"),
    Fault("msync", 8, errno.EIO, ".seg"),
    Fault("sync", 5, errno.EIO, "data.mdb"),
    Fault("write", 1, errno.ENOSPC, "data.mdb"),
    Fault("write", 9, errno.EIO, "data.mdb"),
    Fault("open", 2, errno.EMFILE, ".seg"),
)

_FAILED_SYNC = refused(Fault("msync", 3, errno.EIO, ".seg"))
_ADDS = Plan("", (Run(("begin", "adds")),))
_BEGIN = Plan("", (Run(("begin",)),))

MUTANT_PLANS: dict[str, Plan] = {
    "acknowledge early": _ADDS,
    "no msync": _ADDS,
    "delete the journal first": _ADDS,
    "no directory fsync": _ADDS,
    "retry a failed sync": _FAILED_SYNC,
    "no tombstone": _BEGIN,
    "no tombstone at drop": Plan("", (Run(("begin", "drop")),)),
    "no fsync of new files": _ADDS,
    "catalog made in place": _BEGIN,
    "not marked dirty": _BEGIN,
    "folders above not synced": NEW_FOLDERS,
    "catalog's name not settled": KILLED_BEFORE_THE_LAST_SYNC,
}


def with_mutant(mutant: str) -> Plan:
    """The plan that shows this mutant; without a name, the same plan with the real library."""
    plan = MUTANT_PLANS[mutant]
    runs = tuple(replace(run, mutant=mutant) for run in plan.runs)
    return replace(plan, name=mutant, runs=runs)


def without_mutant(mutant: str) -> Plan:
    """The same plan with the library as it is."""
    return replace(MUTANT_PLANS[mutant], name=f"real library, as for {mutant!r}")
