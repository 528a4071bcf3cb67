"""The filter families: what a user asks for, and the stages it leads to.

In: a family and a stage number (and the arrival rates so far), out: a StageSpec, or None when the
family does not grow. Families are frozen values with a plain form for the catalog.

    family    stage i holds          error of stage i       the whole filter
    Fixed     capacity               target_error           target_error; full means full
    Scalable  initial * growth^i     P (1 - r) r^i          at most target_error, for ever
    Dynamic   capacity               target_error           grows with every stage, by a little
    Flexible  capacity * 2^(speed-1) the baseline's         more than its own error (promise.py)

Invariants
  1. The same family gives the same stages on every machine: sizes come from theory/ alone.
  2. `stage(i)` exists for every i of a family that grows, up to slices of 2^48 bits (32 TiB).

Not here: living stages and their fill (store), formulas (theory).
"""

from __future__ import annotations

import collections.abc as abc
import operator
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

from bloomstore.errors import SpecError
from bloomstore.families.expansion import (
    ByRate,
    Expansion,
    Sequence,
    expansion_from_dict,
    expansion_to_dict,
)
from bloomstore.families.stage import FullBy, StageSpec
from bloomstore.layout.contract import MAX_HASHES, SchemeCode
from bloomstore.layout.layouts import BY_NAME, SCHEMES, Layout, Scheme
from bloomstore.layout.plain import PlainGeometry
from bloomstore.theory import flexible, scalable
from bloomstore.theory.sizing import round_up_power_of_two
from bloomstore.theory.vector import capacity_for_error, plain_error

# Smallest error a family may be asked for: 2^-40 leaves room for tightening within 64 hashes.
LEAST_ERROR = 1e-12
# A stage that reports more than this is of no use, and where errors are within rounding of 1 there
# is no size. Asked of new stages only: what was made before is still read.
MOST_ERROR = 0.99
_TINY = 1e-30  # errors of stages far out get no smaller: there is no size for 0
# From here on a stage that counts new keys is sized for the keys that it is offered: it meets 1 %
# more of them at an error of 0.04, 14 % at 0.3, and an eighth of a percent at 0.01.
OFFERED_FROM_ERROR = 0.02
# A fixed filter keeps this many standard deviations of fill in reserve, so that 999 of 1000 sets
# of `capacity` keys fit; it costs 0.3 % of the bits at 10^5 keys and less above.
RESERVE_SIGMAS = 3.1


# One cache line per lookup is worth its bits while they are few. Measured against sliced at 10^7
# keys (tools/compare/layouts.py): at an error of 1e-2 blocked takes 3 % more bits, a warm hit 0.2
# and a cold one 0.6 of the time; at 1e-3 8 % more, and 0.4 of both; at 1e-4 already 15 % more.
# A miss takes as long, up to 1.5 times at 1e-3.
BLOCKED_FROM_ERROR = 1e-3


def default_layout(target_error: float, scheme: Scheme, *, grows_tighter: bool) -> Layout:
    """The layout a family takes when none is named.

    A filter whose stages get tighter as it grows is sliced: it would pay the extra bits in every
    stage, and its misses, which ask all stages, take 1.25 times as long when blocked.
    """
    if grows_tighter or scheme == "h3" or target_error < BLOCKED_FROM_ERROR:
        return "sliced"
    return "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """One stage for a known number of keys; adding more than fit raises FilterFull.

    store.create("words", Fixed(capacity=1_000_000, target_error=0.01))
    """

    capacity: int
    target_error: float
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        _set(self, "capacity", _whole("capacity", self.capacity, 1))
        _set(self, "target_error", _error("target_error", self.target_error))
        _check_hashing(self.layout, self.scheme, self.seed)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec | None:
        """The only stage; None for any other."""
        if index:
            return None
        return _sized(self, self.capacity, self.target_error, margin=RESERVE_SIGMAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalable:
    """Grows without bound and keeps `target_error` for the whole filter (Almeida et al., 2007).

    store.create("seen", Scalable(target_error=1e-3, initial_capacity=10_000))
    """

    target_error: float
    initial_capacity: int = 10_000
    growth: float = 2.0
    tightening: float = 0.85
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        _set(self, "target_error", _error("target_error", self.target_error))
        _set(self, "initial_capacity", _whole("initial_capacity", self.initial_capacity, 1))
        _set(self, "growth", _real("growth", self.growth))
        _set(self, "tightening", _real("tightening", self.tightening))
        if not 1.0 <= self.growth <= 16.0:
            raise SpecError(f"growth must be in 1..16, got {self.growth}")
        if not 0.0 < self.tightening < 1.0:
            raise SpecError(f"tightening must be in (0, 1), got {self.tightening}")
        _check_hashing(self.layout, self.scheme, self.seed)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Stage `index`: growth^index times the keys at tightening^index times the error."""
        first_error = scalable.first_error(self.target_error, self.tightening)
        error = max(scalable.stage_error(first_error, self.tightening, index), _TINY)
        try:
            capacity = ceil(self.initial_capacity * self.growth**index)
        except OverflowError:
            raise SpecError(f"stage {index} at growth {self.growth} has no size") from None
        return _sized(self, capacity, error, tightens=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """Grows by stages of one size, each with `target_error`: errors add up (the DBF of SFBF, 2).

    store.create("today", Dynamic(capacity=100_000, target_error=1e-4))
    """

    capacity: int
    target_error: float
    layout: Layout | None = None
    scheme: Scheme = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        _set(self, "capacity", _whole("capacity", self.capacity, 1))
        _set(self, "target_error", _error("target_error", self.target_error))
        _check_hashing(self.layout, self.scheme, self.seed)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Every stage is like the first, and full after `capacity` new keys."""
        return _sized(self, self.capacity, self.target_error, full_by=FullBy.KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flexible:
    """Grows at a speed you choose, by a sequence or by arrival rate (SFBF).

    All vectors are powers of two and share H3 hashes, so a lookup hashes once however many there
    are. Give `capacity` of the baseline, or the tolerable `error` it follows from.

    store.create("flows", Flexible(baseline_bits=1 << 20, hashes=6, error=1e-3, expansion=ByRate()))
    """

    baseline_bits: int
    hashes: int
    capacity: int | None = None
    error: float | None = None
    expansion: Expansion = field(default_factory=lambda: Sequence([1]))
    scheme: Scheme = "h3"
    seed: int = 0

    def __post_init__(self) -> None:
        bits = _whole("baseline_bits", self.baseline_bits, 8)
        _set(self, "baseline_bits", bits)
        _set(self, "hashes", _whole("hashes", self.hashes, 1))
        if self.hashes > MAX_HASHES:
            raise SpecError(f"hashes must be in 1..{MAX_HASHES}, got {self.hashes}")
        if bits & (bits - 1):
            raise SpecError(f"baseline_bits must be a power of two, got {bits}")
        if (self.capacity is None) == (self.error is None):
            raise SpecError("give either capacity or error of the baseline, not both and not none")
        if self.capacity is not None:
            _set(self, "capacity", _whole("capacity", self.capacity, 1))
        if self.error is not None:
            _set(self, "error", _error("error", self.error))
        if not isinstance(self.expansion, Sequence | ByRate):
            raise SpecError(f"expansion must be Sequence or ByRate, got {self.expansion!r}")
        _check_hashing("plain", self.scheme, self.seed)
        self.stage(0, ())

    @property
    def baseline_capacity(self) -> int:
        """Keys the baseline vector holds (SFBF eq. 2 when only the error was given)."""
        if self.capacity is not None:
            return self.capacity
        assert self.error is not None
        keys = capacity_for_error(self.baseline_bits, self.hashes, self.error)
        if not 1 <= keys < 1 << 62:
            many = "no key" if keys < 1 else "more keys than can be counted"
            raise SpecError(
                f"{self.baseline_bits} bits and {self.hashes} hashes hold {many} at error"
                f" {self.error}"
            )
        return int(keys)

    @property
    def target_error(self) -> float:
        """Error of one full vector."""
        return plain_error(self.baseline_bits, self.hashes, self.baseline_capacity)

    def stage(self, index: int, rates: abc.Sequence[float]) -> StageSpec:
        """Stage `index`, 2^(speed - 1) times the baseline."""
        speed = self.expansion.speed(index, rates)
        bits = flexible.vector_bits(self.baseline_bits, speed)
        capacity = flexible.vector_capacity(self.baseline_capacity, speed)
        return StageSpec(
            geometry=PlainGeometry(
                scheme=SCHEMES[self.scheme], slice_bits=bits, hashes=self.hashes
            ),
            capacity=capacity,
            fill_limit=1.0,
            target_error=plain_error(bits, self.hashes, capacity),
            full_by=FullBy.KEYS,
        )


FilterSpec = Fixed | Scalable | Dynamic | Flexible
_FAMILIES: dict[str, type[FilterSpec]] = {
    "fixed": Fixed,
    "scalable": Scalable,
    "dynamic": Dynamic,
    "flexible": Flexible,
}


def resolved(spec: FilterSpec) -> FilterSpec:
    """The same spec with its layout named, as it is written into the catalog."""
    if isinstance(spec, Flexible) or spec.layout is not None:
        return spec
    return replace(spec, layout=_layout_of(spec))


def capacity_of(spec: FilterSpec) -> int:
    """Keys that the first stage is made for."""
    if isinstance(spec, Flexible):
        return spec.baseline_capacity
    return spec.initial_capacity if isinstance(spec, Scalable) else spec.capacity


def is_same(asked: FilterSpec, existing: FilterSpec, *, is_rebuilt: bool = False) -> bool:
    """Whether an existing filter is what was asked for.

    A layout that was not named fits any, and so does the capacity that a rebuild chose.
    """
    if is_rebuilt and isinstance(existing, Scalable) and isinstance(asked, Scalable):
        existing = replace(existing, initial_capacity=asked.initial_capacity)
    if is_rebuilt and isinstance(existing, Fixed | Dynamic) and isinstance(asked, Fixed | Dynamic):
        existing = replace(existing, capacity=asked.capacity)
    if isinstance(asked, Flexible) or isinstance(existing, Flexible) or asked.layout is not None:
        return asked == existing
    return asked == replace(existing, layout=None)


def spec_to_dict(spec: FilterSpec) -> dict[str, Any]:
    """Plain form of a spec, for catalog rows and `--json`."""
    name = next(name for name, family in _FAMILIES.items() if type(spec) is family)
    plain = asdict(spec)
    if isinstance(spec, Flexible):
        plain["expansion"] = expansion_to_dict(spec.expansion)
    return {"family": name} | plain


def spec_from_dict(plain: abc.Mapping[str, Any]) -> FilterSpec:
    """Inverse of spec_to_dict. Raises SpecError for anything else."""
    fields = dict(plain)
    family = _FAMILIES.get(str(fields.pop("family", None)))
    if family is None:
        raise SpecError(f"unknown filter family {plain.get('family')!r}")
    if isinstance(fields.get("expansion"), dict):
        fields["expansion"] = expansion_from_dict(fields["expansion"])
    try:
        return family(**fields)
    except TypeError as error:
        raise SpecError(f"{plain.get('family')}: {error}") from None


def _sized(
    spec: Fixed | Scalable | Dynamic,
    capacity: int,
    error: float,
    *,
    tightens: bool = False,
    margin: float = 0.0,
    full_by: FullBy = FullBy.FILL,
) -> StageSpec:
    kind, scheme = BY_NAME[_layout_of(spec)], SCHEMES[spec.scheme]
    if not capacity < 1 << 62:
        raise SpecError(f"a stage holds less than 2^62 keys, asked for {capacity}")
    if error > MOST_ERROR:
        raise SpecError(f"target_error must be in [{LEAST_ERROR}, {MOST_ERROR}], got {error!r}")
    sizing = kind.size(capacity, error, kind.hashes_at(error) if tightens else None, margin)
    if full_by is FullBy.KEYS and error > OFFERED_FROM_ERROR:
        offered = ceil(capacity * kind.offered_when_full(sizing))
        sizing = kind.size(offered, error, sizing.hashes, margin)
    bits = sizing.slice_bits
    return StageSpec(
        geometry=kind(
            scheme=scheme,
            slice_bits=round_up_power_of_two(bits) if scheme is SchemeCode.H3 else bits,
            hashes=sizing.hashes,
        ),
        capacity=capacity,
        fill_limit=sizing.fill_limit,
        target_error=error,
        full_by=full_by,
    )


def _layout_of(spec: Fixed | Scalable | Dynamic) -> Layout:
    grows_tighter = isinstance(spec, Scalable)
    return spec.layout or default_layout(
        spec.target_error, spec.scheme, grows_tighter=grows_tighter
    )


def _check_hashing(layout: object, scheme: object, seed: object) -> None:
    if layout is not None and (not isinstance(layout, str) or layout not in BY_NAME):
        raise SpecError(f"layout must be one of {', '.join(BY_NAME)}, got {layout!r}")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise SpecError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    if layout is not None:
        BY_NAME[layout].check_scheme(SCHEMES[scheme])
    if type(seed) is not int or not 0 <= seed < 1 << 32:
        raise SpecError(f"seed must be an int in 0..2^32-1, got {seed!r}")


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool):
        raise SpecError(f"{name} must be a whole number, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SpecError(f"{name} must be a whole number, got {value!r}") from None
    if not least <= number < 1 << 62:
        raise SpecError(f"{name} must be in {least}..2^62, got {number}")
    return number


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise SpecError(f"{name} must be a number that a float can hold, got a larger") from None


def _error(name: str, value: object) -> float:
    error = _real(name, value)
    if not LEAST_ERROR <= error < 1.0:
        raise SpecError(f"{name} must be in [{LEAST_ERROR}, 1), got {value!r}")
    return error


def _set(spec: object, name: str, value: object) -> None:
    object.__setattr__(spec, name, value)
