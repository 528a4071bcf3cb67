"""The price of stages: lookups and bits per key of grown filters, and the H3 shift query.

As a program it prints one JSON object for the kernels it runs on; `tools/bench.py --stages` starts
it with BLOOMSTORE_KERNELS=numpy for the other twin.

    shift    H3: addresses are computed once per key and shifted for each stage
    direct   the same stages asked one by one, so that each computes its addresses
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bloomstore
from bloomstore import Scalable, kernels
from bloomstore.filters.chain import Chain
from bloomstore.keys import fingerprints
from tests.support.checkout import environment
from tools.bench.measure import once, take_turns

STAGES = (1, 4, 8, 12)


def ask_each(chain: Chain, prints: Any) -> None:
    for vector, geometry in zip(chain.vectors, chain.geometries, strict=True):
        kernels.find([vector], [geometry], prints)


def measure(keys: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    present = rng.integers(0, 1 << 61, keys, dtype=np.int64) * 2
    absent = present[: min(keys, 200_000)] + 1
    prints = fingerprints(absent)
    found: dict[str, Any] = {"kernels": kernels.BACKEND, "keys": keys, "rows": []}
    with tempfile.TemporaryDirectory() as folder, bloomstore.open(Path(folder) / "store") as store:
        for scheme in ("spread", "h3"):
            chains = {}
            for stages in STAGES:
                # The stages 1 + 2 + 4 + ... hold all keys when the last one is nearly full.
                spec = Scalable(
                    target_error=0.01,
                    initial_capacity=max(1, int(keys * 1.01 / (2**stages - 1))),
                    scheme=scheme,
                )
                grown = store.create(f"{scheme} {stages}", spec, durability="process")
                grown.add_many(present)
                grown.may_contain_many(absent)
                chains[stages] = (grown, grown._current().live, grown.stats())
            calls: dict[str, Any] = {}
            for stages, (grown, chain, _) in chains.items():
                calls[f"{stages} lookup"] = once(partial(grown.may_contain_many, absent))
                calls[f"{stages} once"] = once(
                    partial(kernels.find, chain.vectors, chain.geometries, prints)
                )
                calls[f"{stages} each"] = once(partial(ask_each, chain, prints))
            timings = take_turns(calls, rounds)
            for stages, (_, _, stats) in chains.items():
                best = {
                    name: timings[f"{stages} {name}"].best / len(absent) * 1e9
                    for name in ("lookup", "once", "each")
                }
                found["rows"].append(
                    {
                        "scheme": scheme,
                        "stages": len(stats.stages),
                        "bits_per_key": stats.bits / stats.keys,
                        "lookup_ns": best["lookup"],
                        "find_ns": best["once"],
                        "find_each_ns": best["each"],
                        "shift_over_direct": best["once"] / best["each"],
                    }
                )
    return found


def both_twins(keys: int, rounds: int) -> list[dict[str, Any]]:
    """This process's kernels, and the numpy ones in another process."""
    found = [measure(keys, rounds)]
    if kernels.BACKEND != "numpy":
        variables = environment(BLOOMSTORE_KERNELS="numpy")
        command = [sys.executable, "-m", "tools.bench.stages", str(keys), str(max(2, rounds // 2))]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return found


def print_stages(found: list[dict[str, Any]]) -> None:
    print(f"{'kernels':9} {'scheme':7} {'stages':>6} {'bits/key':>9} {'lookup':>9} {'find':>9}"
          f" {'one by one':>11} {'ratio':>6}   (ns per absent key)")  # fmt: skip
    for twin in found:
        for row in twin["rows"]:
            print(f"{twin['kernels']:9} {row['scheme']:7} {row['stages']:6}"
                  f" {row['bits_per_key']:9.1f} {row['lookup_ns']:9.1f} {row['find_ns']:9.1f}"
                  f" {row['find_each_ns']:11.1f} {row['shift_over_direct']:6.2f}")  # fmt: skip
    print("h3, ratio: the shift query (addresses once) over addresses for each stage")


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
