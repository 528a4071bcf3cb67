"""Write tests/golden/keys.json: keys of all kinds with tag, encoded bytes and fingerprints.

    python tests/golden/make_keys.py            append the rows that are missing
    python tests/golden/make_keys.py --check    exit 1 if the file is not what the code gives

Rows are never replaced: a row that differs is an error in the code, since stores out there hold
fingerprints made like it.
"""

import argparse
import json
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np

from bloomstore.keys import encode, fingerprint

PATH = Path(__file__).with_name("keys.json")
SEEDS = (0, 12345)
NAMES = {
    "Decimal": Decimal,
    "UUID": UUID,
    "date": date,
    "datetime": datetime,
    "np": np,
    "timedelta": timedelta,
    "timezone": timezone,
}
KEYS = [
    "''", "'a'", "'alice'", "'user-123456@example.org'", "'caf\\xe9'", "'cafe\\u0301'",
    "'\\u65e5\\u672c\\u8a9e'", "'\\U0001f600'", "'\\ud83d\\ude00'", "'\\ud800'", "'nul\\0'",
    "'x' * 100", "np.str_('alice')",
    "b''", "b'a'", "b'alice'", "bytes(range(256))", "bytearray(b'alice')",
    "memoryview(b'alice')", "np.bytes_(b'alice')",
    "0", "1", "True", "1.0", "Decimal('1.00')", "np.int8(1)", "np.float32(1.0)", "np.bool(True)",
    "-1", "-0.0", "255", "256", "2**53 + 1", "2**63 - 1", "-(2**63)",
    "2**63", "-(2**63) - 1", "2**64 - 1", "2**64", "-(2**64)", "2**127", "10**40", "1e300",
    "Decimal('1e40')", "np.uint64(2**64 - 1)",
    "0.5", "-0.5", "0.1", "5e-324", "float('inf')", "-float('inf')", "Decimal('-0.50')",
    "Decimal('-Infinity')", "np.float32(0.1)",
    "Decimal('0.1')", "Decimal('-0.10')", "Decimal('12345678901234567890.123')",
    "Decimal('1E-500')",
    "UUID(int=0)", "UUID('12345678-1234-5678-1234-567812345678')",
    "date(1, 1, 1)", "date(2024, 2, 29)", "date(9999, 12, 31)",
    "datetime(1970, 1, 1)", "datetime(2024, 2, 29, 12, 30, 15, 123456)",
    "datetime.min", "datetime.max", "datetime(2024, 10, 27, 2, 30, fold=1)",
    "datetime(1970, 1, 1, tzinfo=timezone.utc)",
    "datetime(2024, 2, 29, 12, 30, tzinfo=timezone(timedelta(hours=2)))",
    "datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))",
    "()", "(1,)", "(1.0, 'a', b'a')", "((1, 2), 3)", "(1, (2, 3))",
    "(0.5, Decimal('0.1'), UUID(int=1), date(2024, 2, 29), datetime(2024, 2, 29), 2**64)",
]  # fmt: skip


def row_of(expression: str) -> dict[str, object]:
    """What the code gives for one key, given as a Python expression."""
    key = eval(expression, dict(NAMES))
    tag, encoded = encode(key)
    prints = {str(seed): fingerprint(key, seed).hex() for seed in SEEDS}
    return {"key": expression, "tag": int(tag), "encoded": encoded.hex(), "fingerprint": prints}


def problems(rows: list[dict[str, object]]) -> list[str]:
    """One line for each row of the file that the code contradicts."""
    fresh = [row_of(str(row["key"])) for row in rows]
    pairs = zip(rows, fresh, strict=True)
    return [f"{row['key']}: file {row}, code {new}" for row, new in pairs if row != new]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    rows = json.loads(PATH.read_text()) if PATH.exists() else []
    known = {row["key"] for row in rows}
    missing = [expression for expression in KEYS if expression not in known]
    wrong = problems(rows)
    if check:
        wrong += [f"{expression}: missing in the file" for expression in missing]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    if not check and missing:
        rows += [row_of(expression) for expression in missing]
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        PATH.write_text(f"[\n{lines}\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
