"""How a store is opened (frozen: reopen to change), and checks of arguments that callers pass."""

from __future__ import annotations

from dataclasses import dataclass

from bloomstore.catalog.environment import LARGEST_MAP_BYTES, LEAST_MAP_BYTES, MAP_BYTES
from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.catalog.rows import DURABILITIES, Durability
from bloomstore.errors import SpecError
from bloomstore.families.contract import FilterSpec

MAX_NAME_BYTES = 400  # an LMDB key has at most 511


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options of one open store.

    durability: for filters created through this handle, unless they name their own.
    lock_seconds: how long a change waits for another process before it raises StoreLocked.
    map_size: how many bytes the catalog may take; additions raise StoreFailed beyond it.
    """

    read_only: bool = False
    durability: Durability = "commit"
    lock_seconds: float = 60.0
    unsafe_filesystem: bool = False
    map_size: int = MAP_BYTES

    def __post_init__(self) -> None:
        check_durability(self.durability)
        seconds = self.lock_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise SpecError(f"lock_seconds must be a number of at least 0, got {seconds!r}")
        if type(self.map_size) is not int or not (
            LEAST_MAP_BYTES <= self.map_size <= LARGEST_MAP_BYTES
        ):
            limits = f"{LEAST_MAP_BYTES}..{LARGEST_MAP_BYTES}"
            raise SpecError(f"map_size must be an int of {limits} bytes, got {self.map_size!r}")


def check_durability(durability: object) -> None:
    """Raises SpecError unless it is "commit" or "process"."""
    if durability not in DURABILITIES:
        raise SpecError(f"durability must be 'commit' or 'process', got {durability!r}")


def check_reason(reason: object) -> Reason:
    """The reason of a fence, given as text or with a code. Raises SpecError."""
    if isinstance(reason, Reason):
        return reason
    if not isinstance(reason, str):
        raise SpecError(f"the reason of a fence is a str, got {reason!r}")
    return Reason(ReasonCode.OTHER, reason)


def check_name(name: object) -> str:
    """The name of a filter. Raises SpecError unless it can be one."""
    if not isinstance(name, str):
        raise SpecError(f"a filter's name is a str, got {type(name).__name__}")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise SpecError(f"a filter's name must be valid Unicode, got {name!r}") from None
    if not 1 <= length <= MAX_NAME_BYTES:
        raise SpecError(f"a filter's name has 1..{MAX_NAME_BYTES} bytes, got {length}")
    return name


def check_spec(spec: FilterSpec) -> FilterSpec:
    """Raises SpecError unless this is the spec of a family."""
    if not isinstance(spec, FilterSpec):
        raise SpecError(
            f"a spec is Fixed, Scalable, Dynamic or Flexible, got {type(spec).__name__}"
        )
    return spec
