"""How a store is opened. Frozen: reopen to change."""

from __future__ import annotations

from dataclasses import dataclass

from bloomstore.catalog.rows import DURABILITIES, Durability
from bloomstore.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options of one open store.

    durability: for filters created through this handle, unless they name their own.
    lock_seconds: how long a change waits for another process before it raises StoreLocked.
    """

    read_only: bool = False
    durability: Durability = "commit"
    lock_seconds: float = 60.0
    unsafe_filesystem: bool = False

    def __post_init__(self) -> None:
        check_durability(self.durability)
        if not self.lock_seconds >= 0:
            raise SpecError(f"lock_seconds must not be negative, got {self.lock_seconds}")


def check_durability(durability: object) -> None:
    """Raises SpecError unless it is one of the two."""
    if durability not in DURABILITIES:
        raise SpecError(f"durability must be 'commit' or 'process', got {durability!r}")


def check_reason(reason: object) -> str:
    """The reason of a fence. Raises SpecError unless it is text."""
    if not isinstance(reason, str):
        raise SpecError(f"the reason of a fence is a str, got {reason!r}")
    return reason
