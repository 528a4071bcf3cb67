"""The same keys give the same bits: in every process, under every hash seed, with both kernels."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from bloomstore import kernels
from tests.support.checkout import environment
from tests.support.quick_stores import open_quietly, quick_folder
from tests.support.variants import VARIANTS

HAS_COMPILED = importlib.util.find_spec("bloomstore.kernels.compiled") is not None


def digest_of_all_variants(path: Path) -> str:
    """Adds keys of every type to every variant; the digest of all their vectors."""
    digest = hashlib.sha256()
    with open_quietly(path, durability="process") as store:
        for variant in VARIANTS:
            # Fixed would refuse what does not fit; the others grow a few times.
            capacity = 1500 if variant.family == "fixed" else 150
            seen = store.create(str(variant), variant.spec(capacity, 1e-3, seed=7))
            seen.add_many(range(-300, 300))
            seen.add_many([f"user {number}" for number in range(300)])
            seen.add_many(str(number).encode() for number in range(300))
            for key in (1.5, -0.0, True, 2**70, "ä", b"", ""):
                seen.add(key)
            chain = seen._current().live
            for vector, geometry in zip(chain.vectors, chain.geometries, strict=True):
                digest.update(f"{variant} {geometry} {len(vector)}\n".encode())
                digest.update(vector.tobytes())
    return digest.hexdigest()


def digest_in_a_process(path: Path, hash_seed: str, backend: str) -> tuple[str, str]:
    """The kernels and the digest that a new process prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.families.test_same_bits", str(path)],
        env=environment(PYTHONHASHSEED=hash_seed, BLOOMSTORE_KERNELS=backend),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    used, digest = done.stdout.split()
    return used, digest


def test_two_hash_seeds_give_the_same_bits() -> None:
    with quick_folder() as folder:
        one = digest_in_a_process(folder / "one", "1", kernels.BACKEND)
        other = digest_in_a_process(folder / "other", "4242", kernels.BACKEND)
    assert one == other


@pytest.mark.skipif(not HAS_COMPILED, reason="the compiled kernels were not built")
def test_both_kernels_give_the_same_bits() -> None:
    with quick_folder() as folder:
        compiled = digest_in_a_process(folder / "compiled", "1", "compiled")
        plain = digest_in_a_process(folder / "numpy", "2", "numpy")
    assert (compiled[0], plain[0]) == ("compiled", "numpy")
    assert compiled[1] == plain[1]


if __name__ == "__main__":
    print(kernels.BACKEND, digest_of_all_variants(Path(sys.argv[1])))
