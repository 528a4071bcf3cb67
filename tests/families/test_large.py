"""Vectors beyond 2^32 bits and files beyond 4 GiB. Slow: each needs its size on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import bloomstore
from bloomstore import FilterSpec, Fixed, Flexible, kernels
from tests.support.variants import count_reported

GIB = 1 << 30
# Every key dirties `hashes` pages: few keys keep what is written to the disk below 200 MB.
KEYS = 5000
# A part of each end that some of 35 000 bits hit for certain (130 expected or more).
END_BYTES = 32 << 20

LARGE: list[FilterSpec] = [
    Fixed(capacity=3_700_000_000, target_error=0.01, layout="plain"),
    Fixed(capacity=3_700_000_000, target_error=0.01, layout="sliced"),
    Fixed(capacity=3_700_000_000, target_error=0.01, layout="blocked"),
    Flexible(baseline_bits=1 << 36, hashes=7, error=0.01),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("spec", LARGE, ids=["plain", "sliced", "blocked", "h3"])
def test_a_file_beyond_4_gib_holds_keys_at_both_ends(
    path: Path, spec: FilterSpec, durability: bloomstore.Durability
) -> None:
    stage = spec.stage(0, ())
    assert stage is not None
    geometry = stage.geometry
    assert geometry.vector_bytes > 4 * GIB
    need = geometry.vector_bytes + GIB
    free = shutil.disk_usage(path.parent).free
    assert free > need, f"{path.parent} has {free} bytes free, this test needs {need}"

    with bloomstore.open(path) as store:
        seen = store.create("seen", spec, durability=durability)
        assert seen.add_many(np.arange(KEYS)) == KEYS
        assert seen.may_contain_many(np.arange(KEYS)).all()
    with bloomstore.open(path) as store:
        seen = store["seen"]
        assert seen.may_contain_many(np.arange(KEYS)).all()
        assert all(key in seen for key in range(0, KEYS, 7))
        assert count_reported(seen, 1_000_000) == 0
        vector = seen._current().live.vectors[0]
        first, last = (
            kernels.count_bits(vector[:END_BYTES]),
            kernels.count_bits(vector[-END_BYTES:]),
        )
        expected = KEYS * geometry.hashes * END_BYTES / len(vector)
        for found in (first, last):
            assert abs(found - expected) < 8 * expected**0.5
        # Addresses cut to 32 bits would all lie in the first half GiB.
        low = kernels.count_bits(vector[: (1 << 32) // 8])
        assert low < KEYS * geometry.hashes * 0.2
        store.drop("seen")
