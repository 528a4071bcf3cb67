"""Why a stage or a filter answers "maybe": a code for programs, a text for people.

A poisoned stage and every fence of a filter have a Reason in their rows. Code decides by the code
alone; the text may be reworded in any version.

    code  name            meaning
       0  OTHER           only the text says why, in the caller's own words
       1  SYNC_FAILED     the stage's bits may not be on the device; `repair` writes it again
       2  UNAPPLIED       the journal rows of the stage could not be applied; likewise
       3  DAMAGED_BLOCKS  nothing says which blocks of the stage are right; `repair` looks again
       4  KEYS_LOST       keys of durability `process` were lost when the machine went down
       5  ROLLED_BACK     the catalog was rolled back and may miss keys
       6  JOURNAL_LOST    a damaged journal row may have held keys
      32  NOT_BUILT       a guard whose filter has not been filled yet
      33  BEING_BUILT     a guard whose filter is being filled
      34  INVALIDATED     a migration has invalidated the guard
      35  BEHIND          the guard is too far behind its outbox
      36  PURGED          keys were purged from the guard's outbox before they were read
      37  UNFED           the triggers of the guard's outbox are missing
      38  ALTERED         text or driver SQL may have altered the guard's table

Codes are append only: none is changed or used again. A reader that does not know a code takes it
for OTHER, and leaves it in the row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ReasonCode(IntEnum):
    """Written into the rows of stages and filters."""

    OTHER = 0
    SYNC_FAILED = 1
    UNAPPLIED = 2
    DAMAGED_BLOCKS = 3
    KEYS_LOST = 4
    ROLLED_BACK = 5
    JOURNAL_LOST = 6
    NOT_BUILT = 32
    BEING_BUILT = 33
    INVALIDATED = 34
    BEHIND = 35
    PURGED = 36
    UNFED = 37
    ALTERED = 38


class Reason(NamedTuple):
    """One reason; as a str it is its text."""

    code: int
    text: str

    def __str__(self) -> str:
        return self.text

    def is_same(self, other: Reason) -> bool:
        """Whether both have one cause: equal codes, and equal texts where the code is OTHER."""
        if self.code == ReasonCode.OTHER:
            return self == other
        return self.code == other.code


# How the texts begin that catalogs of format 2 and earlier have instead of codes (upgrade.py).
_OLDER_TEXTS = {
    "a sync failed": ReasonCode.SYNC_FAILED,
    "its journal rows could not be applied": ReasonCode.UNAPPLIED,
    "damaged blocks": ReasonCode.DAMAGED_BLOCKS,
    "the machine went down before the last keys": ReasonCode.KEYS_LOST,
    "the catalog was rolled back and may miss keys": ReasonCode.ROLLED_BACK,
    "a journal row was damaged and may have held": ReasonCode.JOURNAL_LOST,
    "not built yet": ReasonCode.NOT_BUILT,
    "being built": ReasonCode.BEING_BUILT,
    "a migration invalidates it": ReasonCode.INVALIDATED,
    "a migration has invalidated it": ReasonCode.INVALIDATED,
    "keys were purged from its outbox": ReasonCode.PURGED,
    "triggers of its outbox are missing": ReasonCode.UNFED,
    "perhaps altered by text or driver SQL": ReasonCode.ALTERED,
}


def code_of_older_text(text: str) -> ReasonCode:
    """The code of a reason that was written before there were codes."""
    if text.startswith("more than ") and " keys behind its outbox" in text:
        return ReasonCode.BEHIND
    codes = (code for begin, code in _OLDER_TEXTS.items() if text.startswith(begin))
    return next(codes, ReasonCode.OTHER)
