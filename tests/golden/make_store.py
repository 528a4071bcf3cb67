"""Makes the golden store of the present format version, or checks the one that is there.

Small enough for the repository: vectors of 1000 bits and a catalog of a few pages, packed as one
compressed archive per version. `--check` unpacks all of them, reads them with the present library,
and compares the bits with those that the present library makes of the same keys.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bloomstore
from bloomstore import ByRate, Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence
from bloomstore.catalog import upgrade

HERE = Path(__file__).parent
KEYS = [f"user {number}" for number in range(200)]
ASKED = np.arange(100_000)


def specs() -> dict[str, FilterSpec]:
    found: dict[str, FilterSpec] = {}
    for layout, scheme in [
        ("plain", "spread"),
        ("plain", "h3"),
        ("sliced", "spread"),
        ("sliced", "h3"),
        ("blocked", "spread"),
    ]:
        kind = f"{layout} {scheme}"
        shape: dict[str, Any] = {"layout": layout, "scheme": scheme, "seed": 7}
        found[f"fixed {kind}"] = Fixed(capacity=250, target_error=0.01, **shape)
        found[f"scalable {kind}"] = Scalable(target_error=0.01, initial_capacity=32, **shape)
        found[f"dynamic {kind}"] = Dynamic(capacity=64, target_error=0.01, **shape)
    found["flexible sequence"] = Flexible(
        baseline_bits=512, hashes=4, capacity=40, expansion=Sequence([1, 2])
    )
    found["flexible by rate"] = Flexible(
        baseline_bits=4096, hashes=4, error=0.01, expansion=ByRate()
    )
    return found


def make(folder: Path) -> None:
    with bloomstore.open(folder) as store:
        for name, spec in specs().items():
            store.create(name, spec).add_many(KEYS)


def describe(folder: Path) -> dict[str, object]:
    """What must never change: bits, counts, and the first false positives of every filter."""
    described: dict[str, object] = {}
    with bloomstore.open(folder, read_only=True) as store:
        problems = [str(problem) for problem in store.check()]
        assert not problems, problems
        for name in store:
            users = store[name]
            stats = users.stats()
            assert stats.state.is_sound, stats.state
            assert users.may_contain_many(KEYS).all(), name
            wrong = ASKED[users.may_contain_many(ASKED)][:5].tolist()
            geometry = [(stage.geometry, stage.keys, stage.fill) for stage in stats.stages]
            described[name] = {"keys": stats.keys, "stages": geometry, "false positives": wrong}
    return described


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "fresh"
        make(fresh)
        if "--check" not in sys.argv:
            archive = HERE / f"store-v{upgrade.newest()}.tar.xz"
            if archive.exists():
                sys.exit(f"{archive} exists: a golden file is never replaced")
            with tarfile.open(archive, "w:xz") as tar:
                tar.add(fresh, arcname="store")
            described = json.dumps(describe(fresh), indent=1) + "\n"
            description_of(archive).write_text(described, encoding="utf-8")
            return
        made = json.loads(json.dumps(describe(fresh)))
        archives = sorted(HERE.glob("store-v*.tar.xz"))
        assert len(archives) == upgrade.newest(), "a format has no golden store"
        for archive in archives:
            found = unpack(archive, Path(scratch) / archive.name)
            bloomstore.open(found).close()  # an older one is upgraded
            expected = json.loads(description_of(archive).read_text(encoding="utf-8"))
            assert json.loads(json.dumps(describe(found))) == expected, f"{archive} reads otherwise"
            assert made == expected, f"{archive}: the same keys make other bits"
            print(f"{archive.name}: {len(expected)} filters as they were")


def description_of(archive: Path) -> Path:
    return archive.with_name(archive.name.replace(".tar.xz", ".json"))


def unpack(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        tar.extractall(folder, filter="data")
    # Archives do not keep sparse or allocated space; the files are as long as they were.
    shutil.copymode(folder / "store", folder)
    return folder / "store"


if __name__ == "__main__":
    main()
