"""Column types of each database, values for them, and which guards must be useful."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

SEED = 20
random_numbers = random.Random(SEED)

WORDS = [
    "", " ", "a", "A", "a ", "a  ", " a", "á", "à", "Á", "a\u0301", "ß", "ss", "SS", "Straße", "STRASSE",
    "ı", "i", "I", "İ", "é", "e", "É", "\u00e9", "e\u0301", "ﬁ", "fi", "1", "01", "1.0", " 1 ", "1e0", "+1",
    "0x1", "1_0", "10", "NULL", "null", "\t", "a\t", "a\n", "x" * 59, "x" * 60, "x" * 59 + " ", "😀", "😁",
    "日本", "a\u200b", "a\u00a0", "K", "\u212a", "k", "ſ", "s", "S", "Ω", "\u2126", "aſ", "abc", "ABC", "Abc ",
]  # fmt: skip
INTEGERS: list[Any] = [0, 1, -1, 2, 10, 2**31 - 1, -(2**31), True, False, 1.0, 1.5, -0.0, 2.0, "1", "01", " 1 ",
    "1.0", "1e0", "abc", "", Decimal(1), Decimal("1.00"), Decimal("1.4"), b"1", 2**53, 2**53 + 1, float(2**53), 2**62]  # fmt: skip
NUMBERS: list[Any] = [
    Decimal(text)
    for text in (
        "0",
        "-0",
        "1",
        "1.0",
        "1.00",
        "1.005",
        "1.015",
        "1.01",
        "0.1",
        "0.10",
        "99999999.99",
        "1e3",
        "0.005",
        "0.015",
        "-0.005",
        "1.0049999999999999",
        "0.3",
    )
]
NUMBERS += [0.1, 0.1 + 0.2, 0.3, 1.005, 1.01, 1, 0, -0.0, 0.0, 1e3, True, "1", "1.0", 1.1, 2.675, 2.68]  # fmt: skip
FLOATS: list[Any] = [0.0, -0.0, 0.1, 0.1 + 0.2, 0.3, 1.0, 1, True, 1e300, 5e-324, 16777217, 16777216, 16777217.0,
    float("inf"), float("-inf"), float("nan"), 0.10000000149011612, Decimal("0.1"), "1", 2**53 + 1, float(2**53)]  # fmt: skip
MOMENT = dt.datetime(2024, 3, 31, 2, 30)
ZONE = dt.timezone(dt.timedelta(hours=2))
MOMENTS: list[Any] = [MOMENT, MOMENT.replace(microsecond=1), MOMENT.replace(microsecond=500_000),
    MOMENT.replace(microsecond=999_999), MOMENT.replace(tzinfo=dt.UTC), MOMENT.replace(tzinfo=ZONE),
    (MOMENT - dt.timedelta(hours=2)).replace(tzinfo=dt.UTC), MOMENT.date(), MOMENT.replace(fold=1), "2024-03-31 02:30:00"]  # fmt: skip
ONE = uuid.UUID("12345678-1234-5678-1234-56781234567a")
UUIDS: list[Any] = [ONE, str(ONE), str(ONE).upper(), ONE.hex, ONE.hex.upper(), "{" + str(ONE) + "}", uuid.UUID(int=0),
    "urn:uuid:" + str(ONE), uuid.UUID(int=1), "not a uuid"]  # fmt: skip
BYTES: list[Any] = [
    b"",
    b"a",
    b"A",
    b"a ",
    b"a\0",
    b"a\0\0",
    bytearray(b"a"),
    memoryview(b"a"),
    "a",
    b"\xff",
    b"1",
]
DAYS: list[Any] = [
    dt.date(2024, 1, 1),
    dt.date(1, 1, 1),
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, 5),
    "2024-01-01",
]


class Raw(sa.types.UserDefinedType[Any]):
    """A type that SQLAlchemy knows nothing of."""

    cache_ok = True

    def __init__(self, declared: str) -> None:
        self.declared = declared

    def get_col_spec(self, **_: Any) -> str:
        return self.declared


EVERYWHERE: dict[str, tuple[Any, list[Any]]] = {
    "integer": (sa.Integer(), INTEGERS),
    "bigint": (sa.BigInteger(), INTEGERS),
    "smallint": (sa.SmallInteger(), INTEGERS),
    "boolean": (sa.Boolean(create_constraint=False), [True, False, 0, 1, 1.0, "1"]),
    "numeric": (sa.Numeric(10, 2), NUMBERS),
    "float": (sa.Float(53), FLOATS),
    "uuid": (sa.Uuid(), UUIDS),
    "uuid as text": (sa.Uuid(as_uuid=False), UUIDS),
    "bytes": (sa.LargeBinary(40), BYTES),
    "date": (sa.Date(), DAYS),
    "datetime": (sa.DateTime(), MOMENTS),
    "enum": (sa.Enum("a", "A", "b", native_enum=False, length=5), ["a", "A", "b", "a ", "c"]),
}
TYPES: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "sqlite": EVERYWHERE
    | {
        "text": (sa.String(60), [*WORDS, *INTEGERS]),
        "nocase": (sa.String(60, collation="NOCASE"), [*WORDS, "a\0b", "A\0c", 1]),
        "rtrim": (sa.String(60, collation="RTRIM"), WORDS),
        "no type": (Raw(""), [*WORDS, *INTEGERS, *FLOATS, *BYTES]),
        "text in an integer column": (sa.Integer(), [*WORDS, *INTEGERS, *BYTES, *FLOATS]),
        "text in a real column": (sa.REAL(), [*WORDS, *INTEGERS, *BYTES, *FLOATS, *NUMBERS]),
        "text in a numeric column": (Raw("NUMERIC"), [*WORDS, *FLOATS]),
        "bytes in a text column": (sa.String(60), [*BYTES, *WORDS]),
    },
    "postgresql": EVERYWHERE
    | {
        "text": (sa.Text(), WORDS),
        "varchar": (sa.String(60), WORDS),
        "varchar(2)": (sa.String(2), WORDS),
        "char": (sa.CHAR(5), WORDS),
        "C": (sa.String(60, collation="C"), WORDS),
        "real": (sa.REAL(), FLOATS),
        "numeric without scale": (sa.Numeric(), NUMBERS),
        "timestamptz": (sa.DateTime(timezone=True), MOMENTS),
        "timestamp(3)": (postgresql.TIMESTAMP(precision=3), MOMENTS),
        "native enum": (sa.Enum("a", "A", "b", name="letters"), ["a", "A", "b", "c"]),
        "citext": (postgresql.CITEXT(), WORDS),
    },
    "mariadb": EVERYWHERE
    | {
        "default text": (sa.String(60), WORDS),
        "bin": (sa.String(60, collation="utf8mb4_bin"), WORDS),
        "nopad bin": (sa.String(60, collation="utf8mb4_nopad_bin"), WORDS),
        "nopad bin(2)": (sa.String(2, collation="utf8mb4_nopad_bin"), WORDS),
        "general": (sa.String(60, collation="utf8mb4_general_ci"), WORDS),
        "unicode": (sa.String(60, collation="utf8mb4_unicode_ci"), WORDS),
        "latin": (sa.String(60, collation="latin1_bin"), WORDS),
        "bin(2)": (sa.String(2, collation="utf8mb4_bin"), [*WORDS, "ab\t", "ab\r\n", "ab \v"]),
        "tiny": (mysql.TINYTEXT(collation="utf8mb4_nopad_bin"), [*WORDS, "x" * 250 + " " * 10]),
        "cp932": (sa.String(9, collation="cp932_bin"), [*WORDS, "\u6659", "\u6661"]),
        "char": (sa.CHAR(5, collation="utf8mb4_bin"), WORDS),
        "binary": (sa.BINARY(5), [*BYTES, b"12345"]),
        "varbinary": (sa.VARBINARY(5), BYTES),
        "double": (mysql.DOUBLE(), FLOATS),
        "single": (mysql.FLOAT(), FLOATS),
        "datetime(6)": (mysql.DATETIME(fsp=6), MOMENTS),
        "datetime(3)": (mysql.DATETIME(fsp=3), MOMENTS),
        "timestamp": (mysql.TIMESTAMP(), MOMENTS),
        "native enum": (sa.Enum("a", "b"), ["a", "A", "b", "á", "a ", "c"]),
    },
}
# Types whose guard must be useful: it must say ABSENT for most values that are absent.
USEFUL = {
    "sqlite": ["integer", "bigint", "text", "nocase", "uuid", "numeric", "float", "bytes", "date"],
    "postgresql": ["integer", "bigint", "text", "varchar", "char", "uuid", "numeric", "float", "bytes", "date"],
    "mariadb": ["integer", "bigint", "bin", "nopad bin", "uuid", "numeric", "double", "varbinary", "date"],
}  # fmt: skip


def generated(values: list[Any]) -> list[Any]:
    """The listed values, and random ones of the same types."""
    made: list[Any] = []
    for value in values:
        if type(value) is str and len(value) < 40:
            made.append("".join(random_numbers.choice("aAbáß 1ſK\u212a") for _ in range(3)))
        elif type(value) is int:
            made.append(random_numbers.randint(-(2**33), 2**33))
        elif type(value) is float:
            made.append(
                random_numbers.choice([random_numbers.random(), random_numbers.gauss(0, 1e6)])
            )
        elif type(value) is Decimal:
            made.append(
                Decimal(random_numbers.randint(-(10**9), 10**9)).scaleb(
                    -random_numbers.randint(0, 8)
                )
            )
    return [*values, *made]


def fresh(name: str) -> list[Any]:
    """Values that nobody has stored."""
    make: dict[str, Any] = {
        "integer": lambda n: 1_000_000 + n, "bigint": lambda n: 2**40 + n, "numeric": lambda n: Decimal(n) + Decimal("7000.25"),
        "float": lambda n: n + 0.123, "double": lambda n: n + 0.123, "uuid": lambda n: uuid.UUID(int=10**20 + n),
        "bytes": lambda n: b"fresh%d" % n, "varbinary": lambda n: b"f%d" % n,
        "date": lambda n: dt.date(1950, 1, 1) + dt.timedelta(days=n), "char": lambda n: f"q{n}",
    }  # fmt: skip
    return [make.get(name, lambda n: f"fresh{n}")(n) for n in range(50)]
