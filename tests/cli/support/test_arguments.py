"""Numbers as people write them."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from bloomstore.cli.main import make_parser
from bloomstore.cli.support.arguments import error_share, seed_number, speed_list, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("5000", 5000), ("1_000_000", 10**6), ("1e6", 10**6), ("10M", 10**7), ("10m", 10**7),
     ("1.5k", 1500), ("64Ki", 65536), ("1Mi", 1 << 20), ("2G", 2 * 10**9), ("1E+3", 1000),
     ("2 k", 2000), ("0", 0)],
)  # fmt: skip
def test_whole_numbers_have_many_forms(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "many", "1.5", "-3", "1x", "1e", "1e999", "nan", "inf", "1..5", "9e18", "_"],
)
def test_what_is_no_whole_number_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a whole number such as"):
        whole_number(text)


def test_errors_may_be_given_in_per_cent() -> None:
    assert error_share("0.001") == error_share("1e-3") == error_share("0.1%") == 0.001
    with pytest.raises(ArgumentTypeError, match=r"such as 0\.001"):
        error_share("low")


def test_seeds_may_be_hexadecimal() -> None:
    assert seed_number("0xff") == 255
    with pytest.raises(ArgumentTypeError):
        seed_number("salt")


def test_speeds_are_a_list() -> None:
    assert speed_list("1,2,3") == [1, 2, 3]
    with pytest.raises(ArgumentTypeError):
        speed_list("1,fast")


@pytest.mark.parametrize(
    "line",
    [
        "S N a -5 --type int",
        "S N --type int a -5",
        "S N a --type int -5",
        "--type int S N a -5",
        "S --type int N a -- -5",
    ],
)
def test_options_may_stand_anywhere_among_the_keys(line: str) -> None:
    args = make_parser().parse_args(["add", *line.split()])
    assert (str(args.store), args.name, args.key_type) == ("S", "N", "int")
    assert args.keys == ["a", "-5"]


def test_after_two_dashes_everything_is_a_key() -> None:
    args = make_parser().parse_args(["add", "S", "N", "--", "-x", "--type"])
    assert args.keys == ["-x", "--type"]
