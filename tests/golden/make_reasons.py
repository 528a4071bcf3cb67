"""Makes the golden store of reasons of the present format version, or checks those that are there.

Every filter is poisoned or fenced for another reason, which its name says. `--check` unpacks the
stores of all versions that have one: each reason must get its code, and `repair` must do for it
what it does for that code, whatever text an older version wrote.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

import bloomstore
from bloomstore import Fixed, Store
from bloomstore.catalog import upgrade
from bloomstore.catalog.reasons import Reason, ReasonCode

HERE = Path(__file__).parent
FIRST = 2  # format 1 had the same texts, and its stores go through format 2
KEYS = list(range(50))
POISONED = {
    "sync failed": ReasonCode.SYNC_FAILED,
    "unapplied": ReasonCode.UNAPPLIED,
    "damaged blocks": ReasonCode.DAMAGED_BLOCKS,
    "keys lost": ReasonCode.KEYS_LOST,
    "rolled back": ReasonCode.ROLLED_BACK,
    "journal lost": ReasonCode.JOURNAL_LOST,
    "other": ReasonCode.OTHER,
}
FENCED = {
    "not built": ReasonCode.NOT_BUILT,
    "being built": ReasonCode.BEING_BUILT,
    "invalidated": ReasonCode.INVALIDATED,
    "behind": ReasonCode.BEHIND,
    "purged": ReasonCode.PURGED,
    "unfed": ReasonCode.UNFED,
    "altered": ReasonCode.ALTERED,
    "stated": ReasonCode.OTHER,
}
# What `repair` cures: bits that are in memory and journal still, and blocks that are sound again.
CURED = {"sync failed", "unapplied", "damaged blocks"}


def make(folder: Path) -> None:
    with bloomstore.open(folder) as store:
        for name in [*POISONED, *FENCED]:
            spec = Fixed(capacity=100, target_error=0.01, layout="sliced", seed=7)
            store.create(name, spec).add_many(KEYS)
        store.checkpoint()
        for name, code in POISONED.items():
            newest = store[name]._current().live.newest.row
            store._core.poison(newest, Reason(code, f"as if: {name}"))
        for name, code in FENCED.items():
            store[name].fence(Reason(code, f"as if: {name}"))


def check(folder: Path) -> None:
    with bloomstore.open(folder) as store:
        for name, code in POISONED.items():
            reason = store[name]._current().live.newest.row.poisoned
            assert reason is not None, name
            assert reason.code == code, (name, reason)
            assert -1 in store[name], name
        for name, code in FENCED.items():
            assert len(store[name].fences_for(code)) == 1, name
            assert -1 in store[name], name
        list(store.repair())
        cured = {name for name in POISONED if store[name].state.is_sound}
        assert cured == CURED, cured
        assert all(_knows(store, name) for name in [*POISONED, *FENCED])


def _knows(store: Store, name: str) -> bool:
    return bool(store[name].may_contain_many(KEYS).all())


def main() -> None:
    if "--check" not in sys.argv:
        archive = HERE / f"reasons-v{upgrade.newest()}.tar.xz"
        if archive.exists():
            sys.exit(f"{archive} exists: a golden file is never replaced")
        with tempfile.TemporaryDirectory() as scratch, tarfile.open(archive, "w:xz") as tar:
            make(Path(scratch) / "store")
            tar.add(Path(scratch) / "store", arcname="store")
    for version in range(FIRST, upgrade.newest() + 1):
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(HERE / f"reasons-v{version}.tar.xz") as tar:
                tar.extractall(scratch, filter="data")
            check(Path(scratch) / "store")
        print(f"reasons-v{version}.tar.xz: {len(POISONED) + len(FENCED)} reasons as they were")


if __name__ == "__main__":
    main()
