"""The options that describe a filter, and the spec they make.

In: parsed options, out: a Fixed, Scalable, Dynamic or Flexible. An option that was not given is
None and takes the family's own default; one that does not belong to the family is refused by
name, so that nobody believes it had an effect.

Not here: ranges of the values (the families check them).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from bloomstore import (
    ByRate,
    Dynamic,
    FilterSpec,
    Fixed,
    Flexible,
    LastValue,
    LinearTrend,
    MovingAverage,
    Scalable,
    Sequence,
)
from bloomstore.cli.support.arguments import (
    UsageError,
    error_share,
    real_number,
    seed_number,
    speed_list,
    whole_number,
)

DEFAULT_ERROR = 0.01
_PREDICTORS = {"last": LastValue, "average": MovingAverage, "trend": LinearTrend}

_SIZED = ("capacity", "target_error", "layout", "scheme", "seed")
_BELONGS: dict[str, tuple[str, ...]] = {
    "fixed": _SIZED,
    "scalable": (*_SIZED, "growth", "tightening"),
    "dynamic": _SIZED,
    "flexible": (
        "baseline_bits",
        "hashes",
        "capacity",
        "error",
        "speeds",
        "by_rate",
        "scheme",
        "seed",
    ),
}
_NEEDED = {
    "fixed": ("capacity",),
    "scalable": (),
    "dynamic": ("capacity",),
    "flexible": ("baseline_bits", "hashes"),
}
_OPTIONS = tuple(dict.fromkeys(name for names in _BELONGS.values() for name in names))


def add_family_options(parser: ArgumentParser) -> None:
    """Every option of every family, grouped by whom it belongs to."""
    families = parser.add_argument_group("family (scalable unless another is named)")
    one = families.add_mutually_exclusive_group()
    one.add_argument("--family", choices=tuple(_BELONGS), help="the same as the flag of its name")
    for name, text in (
        ("fixed", "one vector for a known number of keys; refuses more"),
        ("scalable", "grows without bound and keeps its target error"),
        ("dynamic", "grows by vectors of one size; errors add up"),
        ("flexible", "grows by powers of two at a speed you choose"),
    ):
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
    sized.add_argument("--layout", choices=("plain", "sliced", "blocked"), help="of the bits")
    sized.add_argument("--scheme", choices=("spread", "h3"), help="hash scheme")
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
    speed.add_argument("--by-rate", choices=tuple(_PREDICTORS), help="speed from the arrival rate")


def spec_from_options(args: Namespace) -> FilterSpec:
    """The spec that was asked for. Raises UsageError or SpecError."""
    family = args.family or "scalable"
    given = {name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None}
    for name in given:
        if name not in _BELONGS[family]:
            owners = " and ".join(owner for owner, names in _BELONGS.items() if name in names)
            raise UsageError(f"{_flag(name)} belongs to {owners} filters, not to {family} ones")
    for name in _NEEDED[family]:
        if name not in given:
            raise UsageError(f"a {family} filter needs {_flag(name)}")
    if family == "flexible":
        return _flexible(given)
    given.setdefault("target_error", DEFAULT_ERROR)
    if family == "fixed":
        return Fixed(**given)
    if family == "dynamic":
        return Dynamic(**given)
    if "capacity" in given:
        given["initial_capacity"] = given.pop("capacity")
    return Scalable(**given)


def _flexible(given: dict[str, Any]) -> FilterSpec:
    if ("capacity" in given) == ("error" in given):
        raise UsageError("a flexible filter needs either --capacity or --error")
    speeds, predictor = given.pop("speeds", None), given.pop("by_rate", None)
    if speeds is not None:
        given["expansion"] = Sequence(speeds)
    elif predictor is not None:
        given["expansion"] = ByRate(_PREDICTORS[predictor]())
    return Flexible(**given)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
