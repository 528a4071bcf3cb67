"""Makes positions.json: where the bits of fixed fingerprints lie, for each layout and scheme.

The file exists so that the format cannot change by accident. Segments hold bits and nothing else;
if a scheme gave another address, every filter on disk would lose its keys without a sign of damage.
Rows are only ever added (for a new layout or scheme); a row that changes is a broken format.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bloomstore.layout.contract import Geometry
from bloomstore.layout.layouts import BY_NAME, SCHEMES

PATH = Path(__file__).parent / "positions.json"

# All zeros, all ones, one bit each, and digests: Murmur3 of b"alice" and b"bob", and a counter.
FINGERPRINTS = [
    "00000000000000000000000000000000",
    "ffffffffffffffffffffffffffffffff",
    "01000000000000000000000000000000",
    "00000000000000000000000000000080",
    "aa55b3e8974f1a4f63829f307f42f904",
    "ddafb4600c1f1bb5f8bf5b18adcd9ea9",
    "0123456789abcdeffedcba9876543210",
]
# (layout, scheme, slice bits, hashes): tiny, odd, a power of two, beyond 2^32, all 64 hashes.
GEOMETRIES = [
    ("plain", "spread", 1, 1),
    ("plain", "spread", 1000003, 7),
    ("plain", "spread", 1 << 20, 10),
    ("plain", "spread", (1 << 32) + 15, 4),
    ("plain", "spread", 1 << 48, 3),
    ("sliced", "spread", 8, 3),
    ("sliced", "spread", 26214, 10),
    ("sliced", "spread", 1 << 33, 7),
    ("sliced", "spread", 101, 64),
    ("blocked", "spread", 512, 7),
    ("blocked", "spread", 512 * 20001, 8),
    ("blocked", "spread", 1 << 40, 15),
    ("blocked", "spread", 512 * 3, 64),
    ("plain", "h3", 1, 2),
    ("plain", "h3", 1 << 20, 7),
    ("plain", "h3", 1 << 48, 3),
    ("sliced", "h3", 64, 9),
    ("sliced", "h3", 1 << 33, 7),
    ("sliced", "h3", 1 << 10, 64),
]

Row = dict[str, object]


def geometry_of(layout: str, scheme: str, slice_bits: int, hashes: int) -> Geometry:
    """The geometry that a row of GEOMETRIES describes."""
    return BY_NAME[layout](scheme=SCHEMES[scheme], slice_bits=slice_bits, hashes=hashes)


def rows() -> list[Row]:
    """What the code gives for every geometry and fingerprint."""
    return [
        {
            "geometry": given,
            "fingerprint": print_,
            "addresses": geometry_of(*given).addresses_of_one(bytes.fromhex(print_)),
        }
        for given in GEOMETRIES
        for print_ in FINGERPRINTS
    ]


def main() -> int:
    """Write the file; with --check, write nothing and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    made = [json.dumps(row) for row in rows()]
    kept = [json.dumps(row) for row in json.loads(PATH.read_text())] if PATH.exists() else []
    wrong = [f"file has {line}, the code does not" for line in kept if line not in made]
    if check:
        wrong += [f"file lacks {line}" for line in made if line not in kept]
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong and not check:
        PATH.write_text("[\n" + ",\n".join(f"  {line}" for line in made) + "\n]\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
