"""The reasons for which a stage is poisoned: it answers "maybe" in every process from then on.

Codes decide what `repair` can do about it (catalog/reasons.py); the texts here are for people.
"""

from __future__ import annotations

import collections.abc as abc

from bloomstore.catalog.reasons import Reason, ReasonCode
from bloomstore.catalog.rows import StageRow

UNAPPLIED = Reason(ReasonCode.UNAPPLIED, "its journal rows could not be applied")
KEYS_LOST = Reason(ReasonCode.KEYS_LOST, "the machine went down before the last keys were written")
ROLLED_BACK = Reason(ReasonCode.ROLLED_BACK, "the catalog was rolled back and may miss keys")
JOURNAL_LOST = Reason(ReasonCode.JOURNAL_LOST, "a journal row was damaged and may have held keys")


def sync_failed(error: OSError) -> Reason:
    """The bits may not be on the device, even if a later sync succeeds."""
    return Reason(ReasonCode.SYNC_FAILED, f"a sync failed: {error.strerror}")


def damaged_blocks(blocks: abc.Iterable[int]) -> Reason:
    """Nothing says which blocks of the stage are right."""
    return Reason(ReasonCode.DAMAGED_BLOCKS, f"damaged blocks {list(blocks)}")


def is_poisoned_by(stage: StageRow, *codes: ReasonCode) -> bool:
    """Whether a stage is poisoned for one of these reasons."""
    return stage.poisoned is not None and stage.poisoned.code in codes
