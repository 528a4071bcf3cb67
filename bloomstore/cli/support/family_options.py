"""The options that describe a filter, and the spec they make.

In: parsed options, out: a spec of one of the families, whose fields say which options belong to it
and which of them it needs. An option that was not given is None and takes the family's own default;
an option of another family is refused by name, so that it does not seem to have an effect.

Not here: ranges of the values (the families check them).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import MISSING, fields
from typing import Any

from bloomstore import ByRate, Dynamic, FilterSpec, Fixed, Flexible, Scalable, Sequence
from bloomstore.cli.support.arguments import (
    UsageError,
    error_share,
    real_number,
    seed_number,
    speed_list,
    whole_number,
)
from bloomstore.families.expansion import PREDICTORS
from bloomstore.layout.layouts import BY_NAME, SCHEMES

DEFAULT_ERROR = 0.01

_FAMILIES: dict[str, tuple[type[FilterSpec], str]] = {
    family.family: (family, text)
    for family, text in (
        (Fixed, "one vector for a known number of keys; refuses more"),
        (Scalable, "grows without bound and keeps its target error"),
        (Dynamic, "grows by vectors of one size; errors add up"),
        (Flexible, "grows by powers of two at a speed you choose"),
    )
}
# Fields that have other names on the command line.
_NAMED_OTHERWISE = {"initial_capacity": ("capacity",), "expansion": ("speeds", "by_rate")}


def _options_of(family: type[FilterSpec]) -> dict[str, bool]:
    """The options that belong to a family, by name; True if it cannot do without."""
    return {
        name: field.default is MISSING and field.default_factory is MISSING
        for field in fields(family)  # type: ignore[arg-type]
        for name in _NAMED_OTHERWISE.get(field.name, (field.name,))
    } | ({"target_error": False} if "target_error" in _fields_of(family) else {})


def _fields_of(family: type[FilterSpec]) -> set[str]:
    return {field.name for field in fields(family)}  # type: ignore[arg-type]


_OPTIONS_OF = {name: _options_of(family) for name, (family, _) in _FAMILIES.items()}
_OPTIONS = tuple(dict.fromkeys(name for options in _OPTIONS_OF.values() for name in options))


def add_family_options(parser: ArgumentParser) -> None:
    """Adds every option of every family, grouped by family."""
    families = parser.add_argument_group("family (scalable unless another is named)")
    one = families.add_mutually_exclusive_group()
    one.add_argument("--family", choices=tuple(_FAMILIES), help="the same as the flag of its name")
    for name, (_, text) in _FAMILIES.items():
        one.add_argument(f"--{name}", dest="family", action="store_const", const=name, help=text)

    sized = parser.add_argument_group("size")
    sized.add_argument(
        "--capacity",
        type=whole_number,
        metavar="KEYS",
        help="keys to make room for, in the first vector of families that grow (as 5000, 1e6, 10M)",
    )
    sized.add_argument(
        "--target-error",
        type=error_share,
        metavar="P",
        help=f"share of absent keys that may be answered 'maybe' (default {DEFAULT_ERROR})",
    )
    sized.add_argument("--layout", choices=tuple(BY_NAME), help="of the bits")
    sized.add_argument("--scheme", choices=tuple(SCHEMES), help="hash scheme")
    sized.add_argument("--seed", type=seed_number, metavar="N", help="of the hashes (default 0)")

    grown = parser.add_argument_group("growth of scalable filters")
    grown.add_argument("--growth", type=real_number, metavar="S", help="next vector's size factor")
    grown.add_argument(
        "--tightening", type=real_number, metavar="R", help="next vector's error factor"
    )

    flexible = parser.add_argument_group("flexible filters")
    flexible.add_argument(
        "--baseline-bits", type=whole_number, metavar="BITS", help="first vector, as 1Mi"
    )
    flexible.add_argument("--hashes", type=whole_number, metavar="K", help="bits set by a key")
    flexible.add_argument(
        "--error", type=error_share, metavar="F", help="of a full vector (instead of --capacity)"
    )
    speed = flexible.add_mutually_exclusive_group()
    speed.add_argument(
        "--speeds", type=speed_list, metavar="1,2,3", help="expanding speeds; the last one repeats"
    )
    speed.add_argument("--by-rate", choices=tuple(PREDICTORS), help="speed from the arrival rate")


def spec_from_options(args: Namespace) -> FilterSpec:
    """The spec that was asked for. Raises UsageError or SpecError."""
    name = args.family or Scalable.family
    given = {option: getattr(args, option) for option in _OPTIONS}
    given = {option: value for option, value in given.items() if value is not None}
    for option in given:
        if option not in _OPTIONS_OF[name]:
            owners = " and ".join(other for other, has in _OPTIONS_OF.items() if option in has)
            raise UsageError(f"{_flag(option)} belongs to {owners} filters, not to {name} ones")
    for option, is_needed in _OPTIONS_OF[name].items():
        if is_needed and option not in given:
            raise UsageError(f"a {name} filter needs {_flag(option)}")
    family, _ = _FAMILIES[name]
    return family(**_as_fields(given, _fields_of(family)))


def _as_fields(given: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Options as the fields of a family."""
    if "target_error" in names:
        given.setdefault("target_error", DEFAULT_ERROR)
    if "initial_capacity" in names and "capacity" in given:
        given["initial_capacity"] = given.pop("capacity")
    if "error" in names and ("capacity" in given) == ("error" in given):
        raise UsageError("give exactly one of --capacity and --error")
    speeds, predictor = given.pop("speeds", None), given.pop("by_rate", None)
    if speeds is not None:
        given["expansion"] = Sequence(speeds)
    elif predictor is not None:
        given["expansion"] = ByRate(PREDICTORS[predictor]())
    return given


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
